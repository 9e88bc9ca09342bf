//! Warnings of programs whose sync calls a library keeps from the kernel: no probe can miss what was
//! never asked.

use std::process::Command;

use super::Watcher;
use crate::attribution::window::SessionId;
use crate::processes::preload::{has_eatmydata, starts_with_eatmydata};
use crate::processes::tree::exe;

/// Programs of one session that are named; that there is one is what a reader must know.
const MAX_NAMED: usize = 16;

impl Watcher {
    /// Warns of a command that is about to start with such a library. Looking at it later might be too
    /// late: it may have ended.
    pub(super) fn note_preload_of(&self, session: SessionId, command: &Command) {
        let words =
            self.state().facts.get(&session).and_then(|facts| facts.command.clone()).unwrap_or_default();
        if starts_with_eatmydata(command, &words) {
            let program =
                words.first().map_or_else(|| command.get_program().as_encoded_bytes(), Vec::as_slice);
            self.warn_of_eatmydata(session, program);
        }
    }

    /// Warns of a running process that has mapped one.
    pub(super) fn note_preload_in(&self, session: SessionId, pid: u32) {
        if has_eatmydata(pid)
            && let Some(program) = exe(pid)
        {
            self.warn_of_eatmydata(session, &program);
        }
    }

    /// Looks at the processes that are in sessions now.
    pub(super) fn look_for_preloads(&self, chosen: impl Fn(SessionId) -> bool) {
        // From inside a PID namespace, the kernel's numbers mean other processes.
        if self.own_tgid != Some(std::process::id()) {
            return;
        }
        let state = self.state();
        let Some(control) = &state.control else { return };
        let open = state.facts.iter().filter(|(session, _)| chosen(**session));
        let slots = open.filter_map(|(session, facts)| Some((facts.slot?, *session)));
        let members = control.members_of(&slots.collect());
        // Looking takes a while, and announcements must not wait.
        drop(state);
        for (session, pid) in members {
            self.note_preload_in(session, pid);
        }
    }

    fn warn_of_eatmydata(&self, session: SessionId, program: &[u8]) {
        let program = String::from_utf8_lossy(program);
        let warning = format!("{program} runs with libeatmydata: its sync calls never reach the kernel");
        let mut state = self.state();
        let Some(facts) = state.facts.get_mut(&session) else { return };
        let named = facts.warnings.iter().filter(|known| known.contains("libeatmydata")).count();
        if named < MAX_NAMED && !facts.warnings.contains(&warning) {
            facts.warnings.push(warning);
        }
    }
}
