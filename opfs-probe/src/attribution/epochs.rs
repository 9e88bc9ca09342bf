//! Epochs that can still be counted in, and the windows that were open in each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::window::{Epoch, SessionId, WindowId};

/// A window that is open in an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpenWindow {
    /// The window.
    pub id: WindowId,
    /// Its place in its session's list.
    pub index: usize,
    /// None of its children is open in the epoch, so what is counted there is the window's own.
    pub innermost: bool,
}

/// What an epoch's counts are added to.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveEpoch {
    /// The epoch's session.
    pub session: SessionId,
    /// The windows open in it; shared, because a rotation changes none.
    pub open: Arc<[OpenWindow]>,
    /// The moment at which it ended, if it has: the next epoch of its session, or the number that was next
    /// when the session was closed.
    until: Option<Epoch>,
}

/// Every epoch that is not retired.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Epochs {
    live: BTreeMap<Epoch, LiveEpoch>,
    /// The last epoch of each session that goes on.
    current: HashMap<SessionId, Epoch>,
    newest: u32,
}

impl Epochs {
    /// Starts an epoch. Its number is higher than all before it; after `u32::MAX` numbering starts
    /// over and leaves out those still live.
    pub fn start(&mut self, session: SessionId, open: Arc<[OpenWindow]>) -> Epoch {
        let epoch = self.next();
        self.live.insert(epoch, LiveEpoch { session, open, until: None });
        let before = self.current.insert(session, epoch);
        self.end(before, epoch);
        epoch
    }

    /// Ends a session's last epoch, and gives the moment that begins then.
    pub fn close(&mut self, session: SessionId) -> Epoch {
        let next = self.next();
        let last = self.current.remove(&session);
        self.end(last, next);
        next
    }

    fn next(&mut self) -> Epoch {
        loop {
            self.newest = self.newest.checked_add(1).unwrap_or(1);
            if !self.live.contains_key(&Epoch(self.newest)) {
                return Epoch(self.newest);
            }
        }
    }

    fn end(&mut self, epoch: Option<Epoch>, until: Epoch) {
        if let Some(ended) = epoch.and_then(|epoch| self.live.get_mut(&epoch)) {
            ended.until = Some(until);
        }
    }

    /// The newest number that was given out: the moment of now.
    pub fn moment(&self) -> Epoch {
        Epoch(self.newest)
    }

    /// The live epochs, one a session at most, that went on at a moment.
    pub fn during(&self, moment: Epoch) -> impl Iterator<Item = Epoch> + '_ {
        let now = self.newest;
        // Numbers start over, so they are compared by how long ago they were given out.
        let age = move |epoch: Epoch| now.wrapping_sub(epoch.0);
        let went_on = move |(epoch, live): &(&Epoch, &LiveEpoch)| {
            age(**epoch) >= age(moment) && live.until.is_none_or(|until| age(until) < age(moment))
        };
        self.live.iter().filter(went_on).map(|(epoch, _)| *epoch)
    }

    /// A live epoch.
    pub fn get(&self, epoch: Epoch) -> Option<&LiveEpoch> {
        self.live.get(&epoch)
    }

    /// Forgets an epoch.
    pub fn retire(&mut self, epoch: Epoch) {
        self.live.remove(&epoch);
    }

    /// Forgets every epoch of a session.
    pub fn retire_session(&mut self, session: SessionId) {
        self.live.retain(|_, live| live.session != session);
        self.current.remove(&session);
    }

    /// Live epochs in which a window was open.
    pub fn with_window(&self, window: WindowId) -> impl Iterator<Item = Epoch> + '_ {
        self.live
            .iter()
            .filter(move |(_, live)| live.open.iter().any(|open| open.id == window))
            .map(|(epoch, _)| *epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_start_over_without_touching_live_epochs() {
        let mut epochs = Epochs::default();
        let none: Arc<[OpenWindow]> = Arc::new([]);
        assert_eq!(epochs.start(SessionId(1), none.clone()), Epoch(1));
        assert_eq!(epochs.start(SessionId(1), none.clone()), Epoch(2));
        epochs.retire(Epoch(2));
        epochs.newest = u32::MAX - 1;
        assert_eq!(epochs.start(SessionId(2), none.clone()), Epoch(u32::MAX));
        assert_eq!(epochs.start(SessionId(2), none), Epoch(2), "0 means none and 1 is live");
        assert_eq!(epochs.get(Epoch(1)).map(|live| live.session), Some(SessionId(1)));
        // Session 1 has been in epoch 1 all the time since its second was retired; session 2 came last.
        assert_eq!(epochs.during(Epoch(2)).collect::<Vec<_>>(), [Epoch(2)]);
        assert_eq!(epochs.during(Epoch(u32::MAX)).collect::<Vec<_>>(), [Epoch(u32::MAX)]);
    }

    #[test]
    fn a_moment_lies_in_one_epoch_of_each_session() {
        let mut epochs = Epochs::default();
        let none: Arc<[OpenWindow]> = Arc::new([]);
        let mut start = |session| epochs.start(SessionId(session), none.clone());
        assert_eq!([start(1), start(2), start(1), start(2)], [1, 2, 3, 4].map(Epoch));
        assert_eq!(epochs.close(SessionId(1)), Epoch(5));
        let during = |moment| epochs.during(Epoch(moment)).map(|epoch| epoch.0).collect::<Vec<_>>();
        assert_eq!(during(1), [1]);
        assert_eq!(during(2), [1, 2]);
        assert_eq!(during(3), [2, 3]);
        assert_eq!(during(4), [3, 4]);
        assert_eq!(during(5), [4], "session 1 is closed");
        assert_eq!(epochs.moment(), Epoch(5));
    }
}
