//! Performed syncs by cause.

use opfs_probe_common::performed::Cause;

use crate::report::model::Performed;

/// How many of each cause.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ByCause([u64; Cause::ALL.len()]);

impl ByCause {
    pub fn add(&mut self, cause: Cause, count: u64) {
        self.0[cause as usize] += count;
    }

    pub fn merge(&mut self, other: Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&count| count == 0)
    }

    pub fn into_model(self) -> Performed {
        let of = |cause: Cause| Some(self.0[cause as usize]);
        Performed {
            explicit: of(Cause::Explicit),
            implicit: of(Cause::Implicit),
            kernel: of(Cause::Kernel),
            uring: of(Cause::Uring),
        }
    }
}
