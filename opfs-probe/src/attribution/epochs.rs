//! Epochs that can still be counted in, and the windows that were open in each.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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
}

/// Every epoch that is not retired.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Epochs {
    live: BTreeMap<Epoch, LiveEpoch>,
    newest: u32,
}

impl Epochs {
    /// Starts an epoch. Its number is higher than all before it; after `u32::MAX` numbering starts
    /// over and leaves out those still live.
    pub fn start(&mut self, session: SessionId, open: Arc<[OpenWindow]>) -> Epoch {
        loop {
            self.newest = self.newest.checked_add(1).unwrap_or(1);
            if let Entry::Vacant(free) = self.live.entry(Epoch(self.newest)) {
                free.insert(LiveEpoch { session, open });
                return Epoch(self.newest);
            }
        }
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
    }
}
