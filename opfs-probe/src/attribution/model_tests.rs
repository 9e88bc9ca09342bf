//! Attribution against a naive model that knows, for each call, the windows open when it was made.

use jiff::Timestamp;
use opfs_probe_common::call::{CallTally, FileIdentity, Op};
use opfs_probe_common::flushed::FlushTally;
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::session::{Attribution, Limits, Session};
use super::totals::{CallKey, FileRef, Totals};
use super::window::{Begin, ClientId, Epoch, Moment, SessionId, WindowError};

const LIMITS: Limits = Limits { open_windows: 6, windows_per_session: 10 };

fn at(monotonic_ns: u64) -> Moment {
    Moment { monotonic_ns, realtime: Timestamp::from_nanosecond(i128::from(monotonic_ns)).unwrap() }
}

/// One call of `inode`'s file that took `ns`.
fn call(inode: u64, ns: u64) -> Totals {
    let file = FileRef::Known(FileIdentity { inode_address: inode, inode, dev: 1, generation: 0 });
    let key = CallKey { op: Op::Fsync, process: Some(1), file, errno: 0 };
    let mut totals = Totals::default();
    totals.add_call(key, CallTally { count: 1, total_ns: ns, max_ns: ns, untimed: 0 });
    totals
}

/// One flush that took `ns`, as the kernel keeps it: of no session.
fn flush(ns: u64) -> Totals {
    let tally = FlushTally { flushes: 1, total_ns: ns, max_ns: ns, ..FlushTally::default() };
    Totals { flushes: Some([(7, tally)].into()), ..Totals::default() }
}

fn begin(client: u64, id: &str, name: &str, parent: Option<&str>) -> Begin {
    Begin {
        client: ClientId(client),
        client_id: id.to_owned(),
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        calls: None,
        attrs: Map::new(),
    }
}

/// What may happen. Sessions are numbered as they are opened, ids and names come from small sets, so
/// that re-entry, duplicates and unknown ids are frequent.
#[derive(Clone, Debug)]
enum Event {
    Open,
    Begin { session: usize, client: u64, id: u8, name: u8, parent: Option<u8>, calls: Option<u64> },
    End { session: usize, client: u64, id: u8, calls: Option<u64> },
    Abandon { client: u64 },
    Rotate { session: usize },
    Close { session: usize },
    Call { session: usize, inode: u64, ns: u64 },
    Flush { ns: u64 },
    AbsorbSome { pick: usize },
    AbsorbMoment { pick: usize },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let session = || 0..3_usize;
    let client = || 0..3_u64;
    let id = || 0..6_u8;
    let calls = || proptest::option::of(0..5_u64);
    let event = prop_oneof![
        1 => Just(Event::Open),
        8 => (session(), client(), id(), proptest::option::of(id()), calls()).prop_map(
            |(session, client, id, parent, calls)| Event::Begin { session, client, id, name: id / 2, parent, calls }
        ),
        1 => (session(), client(), id(), id()).prop_map(
            |(session, client, id, name)| Event::Begin { session, client, id, name, parent: None, calls: None }
        ),
        6 => (session(), client(), id(), calls())
            .prop_map(|(session, client, id, calls)| Event::End { session, client, id, calls }),
        1 => client().prop_map(|client| Event::Abandon { client }),
        2 => session().prop_map(|session| Event::Rotate { session }),
        1 => session().prop_map(|session| Event::Close { session }),
        12 => (session(), 0..4_u64, 1..1000_u64)
            .prop_map(|(session, inode, ns)| Event::Call { session, inode, ns }),
        8 => (1..1000_u64).prop_map(|ns| Event::Flush { ns }),
        2 => any::<usize>().prop_map(|pick| Event::AbsorbSome { pick }),
        2 => any::<usize>().prop_map(|pick| Event::AbsorbMoment { pick }),
    ];
    proptest::collection::vec(event, 1..150)
}

#[derive(Clone, Debug, Default)]
struct ModelWindow {
    client: u64,
    id: u8,
    name: u8,
    parent: Option<usize>,
    open_since: Option<u64>,
    entries: u64,
    open_ns: u64,
    aborted: bool,
    /// One for each entry.
    calls: Vec<Option<u64>>,
    own: Totals,
    total: Totals,
}

#[derive(Clone, Debug, Default)]
struct ModelSession {
    ended: bool,
    windows: Vec<ModelWindow>,
    outside: Totals,
    total: Totals,
}

impl ModelSession {
    fn find(&self, client: u64, id: u8) -> Option<usize> {
        self.windows.iter().position(|window| window.client == client && window.id == id)
    }

    fn begin(
        &mut self,
        client: u64,
        id: u8,
        name: u8,
        parent: Option<u8>,
        calls: Option<u64>,
        now: u64,
    ) -> bool {
        let known = self.find(client, id);
        let parent_index = parent.and_then(|parent| self.find(client, parent));
        let parent_open = parent_index.is_some_and(|index| self.windows[index].open_since.is_some());
        let open = self.windows.iter().filter(|window| window.open_since.is_some()).count();
        let refused = self.ended
            || (parent.is_some() && !parent_open)
            || open >= LIMITS.open_windows
            || match known {
                None => self.windows.len() >= LIMITS.windows_per_session,
                Some(index) => {
                    let window = &self.windows[index];
                    window.open_since.is_some() || window.name != name || window.parent != parent_index
                }
            };
        if refused {
            return false;
        }
        let index = known.unwrap_or_else(|| {
            let parent = parent_index;
            self.windows.push(ModelWindow { client, id, name, parent, ..ModelWindow::default() });
            self.windows.len() - 1
        });
        let window = &mut self.windows[index];
        window.open_since = Some(now);
        window.entries += 1;
        window.calls.push(calls);
        true
    }

    fn close(&mut self, index: usize, aborted: bool, now: u64) {
        let Some(since) = self.windows[index].open_since.take() else { return };
        self.windows[index].open_ns += now - since;
        self.windows[index].aborted |= aborted;
        for child in 0..self.windows.len() {
            if self.windows[child].parent == Some(index) {
                self.close(child, true, now);
            }
        }
    }

    fn end(&mut self, client: u64, id: u8, calls: Option<u64>, now: u64) -> bool {
        let index = self.find(client, id).filter(|index| self.windows[*index].open_since.is_some());
        let Some(index) = index else { return false };
        if calls.is_some() {
            *self.windows[index].calls.last_mut().unwrap() = calls;
        }
        self.close(index, false, now);
        true
    }

    fn count(&mut self, call: &Totals) {
        self.total.add(call);
        let open: Vec<usize> =
            (0..self.windows.len()).filter(|index| self.windows[*index].open_since.is_some()).collect();
        if open.is_empty() {
            self.outside.add(call);
        }
        for &index in &open {
            self.windows[index].total.add(call);
            if !open.iter().any(|other| self.windows[*other].parent == Some(index)) {
                self.windows[index].own.add(call);
            }
        }
    }
}

/// The system under test, the model, and what the "kernel" has counted and not yet handed over.
struct Run {
    attribution: Attribution,
    model: Vec<ModelSession>,
    ids: Vec<SessionId>,
    current: Vec<Epoch>,
    pending: Vec<(Epoch, Totals)>,
    /// The newest number of all, by which the "kernel" keeps flushes.
    moment: Epoch,
    flushes: Vec<(Epoch, Totals)>,
    now: u64,
}

impl Run {
    fn apply(&mut self, event: &Event) {
        self.now += 10;
        let now = at(self.now);
        match *event {
            Event::Open if self.model.len() < 3 => {
                let (id, epoch) = self.attribution.open_session(format!("{}", self.model.len()), now);
                self.model.push(ModelSession::default());
                self.ids.push(id);
                self.current.push(epoch);
                self.moment = epoch;
            }
            Event::Begin { session, client, id, name, parent, calls } if session < self.model.len() => {
                let parent_id = parent.map(|parent| parent.to_string());
                let mut asked = begin(client, &id.to_string(), &name.to_string(), parent_id.as_deref());
                asked.calls = calls;
                let before = self.attribution.clone();
                let got = self.attribution.begin(self.ids[session], asked, now);
                let allowed = self.model[session].begin(client, id, name, parent, calls, self.now);
                assert_eq!(got.is_ok(), allowed, "{event:?}: {got:?}");
                match got {
                    Ok((_, epoch)) => self.advance(session, epoch),
                    Err(_) => assert_eq!(self.attribution, before, "an error changed something"),
                }
            }
            Event::End { session, client, id, calls } if session < self.model.len() => {
                let before = self.attribution.clone();
                let (attribution, session_id) = (&mut self.attribution, self.ids[session]);
                let got =
                    attribution.end(session_id, ClientId(client), &id.to_string(), calls, Map::new(), now);
                assert_eq!(got.is_ok(), self.model[session].end(client, id, calls, self.now), "{event:?}");
                match got {
                    Ok((_, epoch)) => self.advance(session, epoch),
                    Err(_) => assert_eq!(self.attribution, before, "an error changed something"),
                }
            }
            Event::Abandon { client } => {
                let changed = self.attribution.abandon(ClientId(client), now);
                let mut expected = Vec::new();
                for (session, model) in self.model.iter_mut().enumerate() {
                    let open: Vec<usize> = (0..model.windows.len())
                        .filter(|&i| {
                            model.windows[i].client == client && model.windows[i].open_since.is_some()
                        })
                        .collect();
                    for &index in &open {
                        model.close(index, true, self.now);
                    }
                    if !open.is_empty() {
                        expected.push(self.ids[session]);
                    }
                }
                assert_eq!(changed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), expected);
                for (id, epoch) in changed {
                    let session = self.ids.iter().position(|known| *known == id).unwrap();
                    self.advance(session, epoch);
                }
            }
            Event::Rotate { session } if session < self.model.len() => {
                let epoch = self.attribution.rotate(self.ids[session]);
                assert_eq!(epoch.is_none(), self.model[session].ended);
                if let Some(epoch) = epoch {
                    self.advance(session, epoch);
                }
            }
            Event::Close { session } if session < self.model.len() => {
                self.moment = self.attribution.close_session(self.ids[session], now);
                let model = &mut self.model[session];
                for index in 0..model.windows.len() {
                    model.close(index, true, self.now);
                }
                model.ended = true;
            }
            // Nothing counts for a session that was closed.
            Event::Call { session, inode, ns }
                if self.model.get(session).is_some_and(|model| !model.ended) =>
            {
                let counts = call(inode, ns);
                self.model[session].count(&counts);
                self.pending.push((self.current[session], counts));
            }
            Event::Flush { ns } => {
                let counts = flush(ns);
                for model in self.model.iter_mut().filter(|model| !model.ended) {
                    model.count(&counts);
                }
                self.flushes.push((self.moment, counts));
            }
            Event::AbsorbMoment { pick } if !self.flushes.is_empty() => {
                let (moment, counts) = self.flushes.swap_remove(pick % self.flushes.len());
                self.attribution.absorb_flushes(moment, &counts.flushes.unwrap());
            }
            Event::AbsorbSome { pick } if !self.pending.is_empty() => {
                let (epoch, counts) = self.pending.swap_remove(pick % self.pending.len());
                assert!(self.attribution.absorb(epoch, &counts));
            }
            _ => {}
        }
    }

    fn advance(&mut self, session: usize, epoch: Epoch) {
        assert!(self.current.iter().all(|known| known.0 < epoch.0), "epochs are unique and grow");
        self.current[session] = epoch;
        self.moment = epoch;
    }

    /// Hands over what is pending, in chunks by epoch, and compares everything.
    fn finish(&mut self, seed: usize) {
        while !self.pending.is_empty() {
            let at = seed % self.pending.len();
            let (epoch, mut counts) = self.pending.swap_remove(at);
            let mut rest = Vec::new();
            for (other, more) in self.pending.drain(..) {
                if other == epoch && rest.len() % 3 != 2 {
                    counts.add(&more);
                } else {
                    rest.push((other, more));
                }
            }
            self.pending = rest;
            assert!(self.attribution.absorb(epoch, &counts));
        }
        for (moment, counts) in self.flushes.drain(..) {
            self.attribution.absorb_flushes(moment, &counts.flushes.unwrap());
        }
        for (session, model) in self.ids.iter().zip(&self.model) {
            compare(self.attribution.session(*session).unwrap(), model);
        }
    }
}

fn compare(session: &Session, model: &ModelSession) {
    assert_eq!(session.total, model.total);
    assert_eq!(session.outside, model.outside);
    assert_eq!(session.windows.len(), model.windows.len());
    assert_eq!(session.ended_at.is_some(), model.ended);
    for (index, (window, expected)) in session.windows.iter().zip(&model.windows).enumerate() {
        assert_eq!(window.client_id, expected.id.to_string());
        assert_eq!(window.entries, expected.entries);
        assert_eq!(window.open_ns, expected.open_ns);
        assert_eq!(window.aborted, expected.aborted);
        assert_eq!(window.open_since.map(|since| since.monotonic_ns), expected.open_since);
        let given: Vec<u64> = expected.calls.iter().flatten().copied().collect();
        assert_eq!(window.calls, (!given.is_empty()).then(|| given.iter().sum()));
        assert_eq!(window.parent, expected.parent.map(|parent| session.windows[parent].id));
        assert!(expected.parent.is_none_or(|parent| parent < index), "a child before its parent");
        assert_eq!(window.own, expected.own, "own of {index}");
        assert_eq!(window.total, expected.total, "total of {index}");
        assert_eq!(session.window(window.id), Some(window));
    }
}

proptest! {
    #[test]
    fn agrees_with_the_naive_model(events in events(), seed in any::<usize>()) {
        let mut run = Run {
            attribution: Attribution::new(LIMITS),
            model: Vec::new(),
            ids: Vec::new(),
            current: Vec::new(),
            pending: Vec::new(),
            moment: Epoch(0),
            flushes: Vec::new(),
            now: 0,
        };
        run.apply(&Event::Open);
        for event in &events {
            run.apply(event);
        }
        run.finish(seed);
    }
}

/// A fresh session with room for everything.
fn fresh() -> (Attribution, SessionId, Epoch) {
    let mut attribution = Attribution::new(Limits { open_windows: 100, windows_per_session: 1000 });
    let (session, epoch) = attribution.open_session("s".to_owned(), at(0));
    (attribution, session, epoch)
}

fn end(
    attribution: &mut Attribution,
    session: SessionId,
    id: &str,
    calls: Option<u64>,
    now: u64,
) -> Result<Epoch, WindowError> {
    attribution.end(session, ClientId(1), id, calls, Map::new(), at(now)).map(|(_, epoch)| epoch)
}

#[test]
fn a_call_counts_in_all_ancestors_and_is_the_innermosts_own() {
    let (mut a, s, first) = fresh();
    let (outer, in_outer) = a.begin(s, begin(1, "o", "outer", None), at(10)).unwrap();
    let (inner, in_inner) = a.begin(s, begin(1, "i", "inner", Some("o")), at(20)).unwrap();
    let after_inner = end(&mut a, s, "i", None, 30).unwrap();
    let after_outer = end(&mut a, s, "o", None, 40).unwrap();
    // Counts may arrive long after the windows ended, and in any order.
    for (epoch, calls) in [(after_outer, 1), (in_inner, 4), (first, 2), (after_inner, 8), (in_outer, 16)] {
        for _ in 0..calls {
            a.absorb(epoch, &call(7, 5));
        }
    }
    let session = a.session(s).unwrap();
    let counts = |totals: &Totals| totals.sync_calls();
    assert_eq!((counts(&session.total), counts(&session.outside)), (31, 3));
    let window = session.window(outer).unwrap();
    assert_eq!((counts(&window.own), counts(&window.total), window.open_ns), (24, 28, 30));
    let window = session.window(inner).unwrap();
    assert_eq!((counts(&window.own), counts(&window.total), window.open_ns), (4, 4, 10));
}

#[test]
fn overlapping_windows_of_two_clients_both_count() {
    let (mut a, s, _) = fresh();
    let (one, only_one) = a.begin(s, begin(1, "w", "tab", None), at(10)).unwrap();
    let (two, both) = a.begin(s, begin(2, "w", "tab", None), at(20)).unwrap();
    let only_two = end(&mut a, s, "w", None, 30).unwrap();
    for epoch in [only_one, both, only_two] {
        a.absorb(epoch, &call(1, 1));
    }
    assert_ne!(one, two, "the same id of two clients is two windows");
    for id in [one, two] {
        let window = a.session(s).unwrap().window(id).unwrap();
        assert_eq!((window.own.sync_calls(), window.total.sync_calls()), (2, 2));
    }
    assert_eq!(a.epochs_of(one).collect::<Vec<_>>(), [only_one, both]);
    a.retire(both);
    assert_eq!(a.epochs_of(one).collect::<Vec<_>>(), [only_one]);
    assert!(!a.absorb(both, &call(1, 1)), "nothing more comes of a retired epoch");
    assert_eq!(a.session(s).unwrap().total.sync_calls(), 3);
}

#[test]
fn calls_given_at_end_replace_the_plan_of_that_entry_and_entries_add_up() {
    let (mut a, s, _) = fresh();
    let entry = |calls| Begin { calls, ..begin(1, "w", "loop", None) };
    let calls_now = |a: &Attribution| a.session(s).unwrap().windows[0].calls;
    a.begin(s, entry(Some(10)), at(1)).unwrap();
    assert_eq!(calls_now(&a), Some(10));
    end(&mut a, s, "w", None, 2).unwrap();
    a.begin(s, entry(Some(10)), at(3)).unwrap();
    assert_eq!(calls_now(&a), Some(20));
    end(&mut a, s, "w", Some(3), 4).unwrap();
    assert_eq!(calls_now(&a), Some(13));
    a.begin(s, entry(None), at(5)).unwrap();
    end(&mut a, s, "w", None, 6).unwrap();
    assert_eq!(calls_now(&a), Some(13));
    a.begin(s, entry(Some(u64::MAX)), at(7)).unwrap();
    assert_eq!(calls_now(&a), Some(u64::MAX), "a client's nonsense overflows nothing");
    end(&mut a, s, "w", Some(1), 8).unwrap();
    assert_eq!(calls_now(&a), Some(14));
    assert_eq!(a.session(s).unwrap().windows[0].entries, 4);
}

#[test]
fn the_end_of_a_parent_aborts_what_is_open_beneath_it() {
    let (mut a, s, _) = fresh();
    a.begin(s, begin(1, "a", "a", None), at(1)).unwrap();
    a.begin(s, begin(1, "b", "b", Some("a")), at(2)).unwrap();
    a.begin(s, begin(1, "c", "c", Some("b")), at(3)).unwrap();
    a.begin(s, begin(1, "x", "x", None), at(4)).unwrap();
    end(&mut a, s, "a", None, 5).unwrap();
    let flags: Vec<_> = a
        .session(s)
        .unwrap()
        .windows
        .iter()
        .map(|window| (window.client_id.as_str(), window.aborted, window.open_since.is_some()))
        .collect();
    assert_eq!(flags, [("a", false, false), ("b", true, false), ("c", true, false), ("x", false, true)]);
    let error = end(&mut a, s, "b", None, 6).unwrap_err();
    assert_eq!(error, WindowError::Unknown("b".to_owned()));
}

#[test]
fn refusals_say_why_and_change_nothing() {
    let mut a = Attribution::new(Limits { open_windows: 2, windows_per_session: 3 });
    let (s, _) = a.open_session("s".to_owned(), at(0));
    a.begin(s, begin(1, "p", "p", None), at(1)).unwrap();
    a.begin(s, begin(1, "w", "w", Some("p")), at(2)).unwrap();
    let before = a.clone();
    let duplicate = |id: &str| Err(WindowError::Duplicate(id.to_owned()));
    let unknown = |id: &str| Err(WindowError::Unknown(id.to_owned()));
    assert_eq!(a.begin(s, begin(1, "w", "w", Some("p")), at(3)), duplicate("w"), "still open");
    assert_eq!(a.begin(s, begin(1, "v", "v", Some("q")), at(3)), unknown("q"));
    assert_eq!(a.begin(s, begin(2, "v", "v", Some("p")), at(3)), unknown("p"), "another client's");
    let limit = a.begin(s, begin(1, "v", "v", None), at(3)).unwrap_err();
    assert_eq!(limit.to_string(), "the number of open windows is limited to 2");
    assert_eq!(a.end(s, ClientId(2), "w", None, Map::new(), at(3)), unknown("w"));
    assert_eq!(a.end(SessionId(9), ClientId(1), "w", None, Map::new(), at(3)), unknown("w"));
    assert!(a.begin(SessionId(9), begin(1, "v", "v", None), at(3)).is_err());
    assert_eq!(a, before);

    end(&mut a, s, "w", None, 4).unwrap();
    assert_eq!(a.begin(s, begin(1, "w", "other", Some("p")), at(5)), duplicate("w"), "another name");
    assert_eq!(a.begin(s, begin(1, "w", "w", None), at(5)), duplicate("w"), "another parent");
    a.begin(s, begin(1, "v", "v", None), at(5)).unwrap();
    end(&mut a, s, "v", None, 6).unwrap();
    let limit = a.begin(s, begin(1, "u", "u", None), at(7)).unwrap_err();
    assert_eq!(limit.to_string(), "the number of windows in a session is limited to 3");
    a.begin(s, begin(1, "w", "w", Some("p")), at(8)).expect("entering again makes no new window");

    a.close_session(s, at(9));
    let closed = a.clone();
    let ended = a.begin(s, begin(1, "v", "v", None), at(10)).unwrap_err();
    assert!(matches!(ended, WindowError::Limit { limit: 0, .. }));
    assert_eq!(end(&mut a, s, "w", None, 10), Err(WindowError::Unknown("w".to_owned())));
    assert_eq!(a, closed);
}

#[test]
fn a_closed_session_takes_late_counts_until_it_is_forgotten() {
    let (mut a, s, _) = fresh();
    let (_, epoch) = a.begin(s, begin(1, "w", "w", None), at(1)).unwrap();
    a.close_session(s, at(5));
    a.close_session(s, at(6));
    assert!(a.absorb(epoch, &call(1, 1)));
    let session = a.session(s).unwrap();
    assert_eq!(session.ended_at, Some(at(5)));
    assert_eq!((session.windows[0].aborted, session.windows[0].total.sync_calls()), (true, 1));
    assert_eq!(a.forget_session(s).map(|session| session.total.sync_calls()), Some(1));
    assert!(!a.absorb(epoch, &call(1, 1)));
    assert_eq!((a.sessions().count(), a.forget_session(s)), (0, None));
}

#[test]
fn attributes_of_begin_and_end_are_merged() {
    let (mut a, s, _) = fresh();
    let attrs = |pairs: &[(&str, i32)]| -> Map<String, Value> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect()
    };
    let asked = Begin { attrs: attrs(&[("run", 1), ("bytes", 4096)]), ..begin(1, "w", "w", None) };
    a.begin(s, asked, at(1)).unwrap();
    a.end(s, ClientId(1), "w", None, attrs(&[("run", 2), ("failed", 0)]), at(2)).unwrap();
    let expected = attrs(&[("run", 2), ("bytes", 4096), ("failed", 0)]);
    assert_eq!(a.session(s).unwrap().windows[0].attrs, expected);
}

#[test]
fn steps_entered_once_a_file_stay_few_windows_and_few_epochs() {
    let (mut a, s, mut epoch) = fresh();
    a.begin(s, begin(1, "loop", "loop", None), at(0)).unwrap();
    for file in 0..10_000_u64 {
        for step in ["create+open", "first write", "close", "delete"] {
            let (_, inside) = a.begin(s, begin(1, step, step, Some("loop")), at(file)).unwrap();
            a.retire(std::mem::replace(&mut epoch, inside));
            a.absorb(inside, &call(1, 1));
            let between = end(&mut a, s, step, None, file).unwrap();
            a.retire(std::mem::replace(&mut epoch, between));
        }
    }
    let session = a.session(s).unwrap();
    assert_eq!(session.windows.len(), 5);
    assert_eq!(session.windows[0].total.sync_calls(), 40_000);
    assert_eq!(session.windows[0].own.sync_calls(), 0);
    assert_eq!((session.windows[3].entries, session.windows[3].own.sync_calls()), (10_000, 10_000));
    assert_eq!(a.epochs_of(session.windows[0].id).count(), 2, "the first of the loop, and the last");
}
