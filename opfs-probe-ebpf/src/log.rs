//! Debug lines through aya-log, compiled in with the feature `kernel-log` only.

/// Logs one line, with the context first: `debug!(context, "format", arguments…)`.
#[cfg(feature = "kernel-log")]
macro_rules! debug {
    ($($argument:tt)*) => {
        aya_log_ebpf::debug!($($argument)*)
    };
}

#[cfg(not(feature = "kernel-log"))]
macro_rules! debug {
    ($($argument:tt)*) => {};
}

pub(crate) use debug;
