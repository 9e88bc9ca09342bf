// From timed passes to one row of results. Pure.

/** Nearest-rank percentile of values in ascending order: the smallest that `percent` % don't exceed. */
export function percentile(sorted, percent) {
  const rank = Math.ceil((percent / 100) * sorted.length);
  return sorted[Math.max(rank, 1) - 1];
}

/** The index of the median; of an even number of values, the lower of the two in the middle. */
export function medianIndex(values) {
  const order = values.map((_, index) => index).sort((a, b) => values[a] - values[b]);
  return order[Math.ceil(order.length / 2) - 1];
}

/**
 * One row of the result. A pass is `{total_ms, latencies, started_epoch_ms, finished_epoch_ms}`,
 * its latencies in milliseconds, one a call, in call order. The row describes the median run by
 * total time; a rate is null where the clock was too coarse to see any time pass.
 */
export function summarise({ name, kind, bytesPerCall, totalBytes }, warmUp, runs) {
  const totals = runs.map((run) => run.total_ms);
  const median = medianIndex(totals);
  const { total_ms, latencies } = runs[median];
  const sorted = Float64Array.from(latencies).sort();
  const calls = latencies.length;
  const perSecond = (amount) => (total_ms > 0 ? (amount / total_ms) * 1000 : null);
  return {
    name,
    kind,
    calls,
    bytes_per_call: bytesPerCall,
    median_run: median + 1,
    runs: runs.map((run) => ({
      total_ms: run.total_ms,
      first_call_us: run.latencies[0] * 1000,
      started_epoch_ms: run.started_epoch_ms,
      finished_epoch_ms: run.finished_epoch_ms,
    })),
    warm_up: { started_epoch_ms: warmUp.started_epoch_ms, finished_epoch_ms: warmUp.finished_epoch_ms },
    total_ms,
    total_min_ms: Math.min(...totals),
    total_max_ms: Math.max(...totals),
    mean_us: (total_ms / calls) * 1000,
    ops_per_s: perSecond(calls),
    mb_per_s: totalBytes === null ? null : perSecond(totalBytes / 1e6),
    p50_us: percentile(sorted, 50) * 1000,
    p90_us: percentile(sorted, 90) * 1000,
    p99_us: percentile(sorted, 99) * 1000,
    max_us: sorted[calls - 1] * 1000,
    first_call_us: latencies[0] * 1000,
  };
}

/** The smallest step of a clock that can be told apart, in its own unit, from some of its readings. */
export function smallestStep(readings) {
  let smallest = Infinity;
  for (let i = 1; i < readings.length; i++) {
    const step = readings[i] - readings[i - 1];
    if (step > 0 && step < smallest) smallest = step;
  }
  return smallest;
}
