// Numbers as people read them. Whatever wasn't measured shows as a dash.

const NOT_MEASURED = "–";

/** A number with a fixed count of decimals; never "-0.0". */
export function fixed(value, decimals) {
  if (value === null || !Number.isFinite(value)) return NOT_MEASURED;
  const text = value.toFixed(decimals);
  return Number(text) === 0 ? text.replace("-", "") : text;
}

/** A whole number with thousands separators. */
export function grouped(value) {
  if (value === null || !Number.isFinite(value)) return NOT_MEASURED;
  return Math.round(value).toLocaleString("en-US");
}

/** A size in the largest binary unit that divides it: 65536 is "64 KiB", 1000 is "1000 B". */
export function size(bytes) {
  const mebibyte = 1024 * 1024;
  if (bytes >= mebibyte && bytes % mebibyte === 0) return `${bytes / mebibyte} MiB`;
  if (bytes >= 1024 && bytes % 1024 === 0) return `${bytes / 1024} KiB`;
  return `${bytes} B`;
}

/** Decimal megabytes, which is what disks and quotas are sold in. */
export function megabytes(bytes, decimals) {
  return bytes === null ? NOT_MEASURED : fixed(bytes / 1e6, decimals);
}

/** A clock resolution: two digits are all that can be said about it. */
export function resolution(microseconds) {
  return fixed(microseconds, microseconds < 10 ? 1 : 0);
}
