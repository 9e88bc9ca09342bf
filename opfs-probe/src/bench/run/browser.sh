#!/bin/sh
# A browser for tests: what goes wrong with it is the page's address.
for url; do :; done
case "$url" in
*/crash*)
    echo "first words" >&2
    echo "Segmentation fault (so to speak)" >&2
    kill -SEGV $$
    ;;
*/sandbox*)
    echo "FATAL: No usable sandbox! More words." >&2
    exit 1
    ;;
*/hang*)
    setsid sleep 1000 &
    trap '' TERM
    sleep 1000
    ;;
esac
