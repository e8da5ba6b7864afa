//! Samples of a run over time, no more than a plot can show.
//!
//! Samples are cumulative counts, so dropping one loses no event. When there are too many, every
//! second one is dropped and the interval doubles: a run of a minute and a run of a week take the
//! same memory.

use std::time::Duration;

use tidegate_sim::outcome::{Axis, Plot, PlotLine};

const SAMPLES_MAX: usize = 480;

/// One sample of the run. Counts are since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TimelineSample {
    /// Time since the start.
    pub(crate) at: Duration,
    /// Calls sent.
    pub(crate) sent: u64,
    /// Calls throttled.
    pub(crate) throttled: u64,
    /// Calls that failed: a status of 500 or more, or none.
    pub(crate) failed_calls: u64,
    /// The time that calls have waited for a retry, in seconds.
    pub(crate) backoff: f64,
    /// Records with an outcome.
    pub(crate) done: u64,
    /// Calls in flight at this time.
    pub(crate) in_flight: u32,
    /// The number of calls that wait for a permit of their lane.
    pub(crate) waiting: u64,
    /// The rate limit of the lanes, in calls per second.
    pub(crate) rate: Option<f64>,
}

/// The samples of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    samples: Vec<TimelineSample>,
    /// The shortest interval between two samples.
    every: Duration,
}

impl Timeline {
    /// Adds a sample if the interval has passed.
    pub(crate) fn take(&mut self, sample: TimelineSample) {
        if self.samples.last().is_some_and(|last| sample.at < last.at + self.every) {
            return;
        }
        self.samples.push(sample);
        if self.samples.len() >= SAMPLES_MAX {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.every = self.every.max(Duration::from_millis(100)) * 2;
        }
    }

    /// The plots of a run of this duration.
    pub(crate) fn plots(&self, took: Duration) -> Vec<Plot> {
        // Rates are averaged over about 1 % of the run, to reduce noise.
        let bin = (took.as_secs_f64() / 100.0).max(0.1);
        let rate = |get: fn(&TimelineSample) -> f64| -> Vec<(f64, f64)> {
            let mut points = Vec::new();
            let mut from = TimelineSample::default();
            for sample in &self.samples {
                let span = (sample.at.saturating_sub(from.at)).as_secs_f64();
                if span >= bin {
                    let x = f64::midpoint(from.at.as_secs_f64(), sample.at.as_secs_f64());
                    points.push((x, (get(sample) - get(&from)).max(0.0) / span));
                    from = *sample;
                }
            }
            points
        };
        let level = |get: fn(&TimelineSample) -> f64| -> Vec<(f64, f64)> {
            self.samples.iter().map(|s| (s.at.as_secs_f64(), get(s))).collect()
        };
        let line = |name: &str, points| PlotLine { name: name.to_string(), points };
        let plot = |title: &str, y: &str, lines| Plot {
            title: title.to_string(),
            x: Axis::linear("seconds"),
            y: Axis::linear(y),
            lines,
        };
        let mut pace = vec![
            line("calls sent", rate(|s| s.sent as f64)),
            line("throttled", rate(|s| s.throttled as f64)),
            line("failed calls", rate(|s| s.failed_calls as f64)),
        ];
        // Omit a rate limit far above the actual rate; it would flatten the other lines.
        let most = pace.iter().flat_map(|l| &l.points).map(|p| p.1).fold(0.0, f64::max);
        let near = |s: &TimelineSample| {
            s.rate.filter(|rate| *rate <= 2.0 * most).map(|rate| (s.at.as_secs_f64(), rate))
        };
        let learned: Vec<_> = self.samples.iter().filter_map(near).collect();
        if !learned.is_empty() {
            pace.push(line("learned limit", learned));
        }
        vec![
            plot("Calls", "per second", pace),
            plot(
                "In flight and in backoff",
                "calls",
                vec![
                    line("in flight", level(|s| f64::from(s.in_flight))),
                    // One second of backoff per second means one waiting call.
                    line("in backoff", rate(|s| s.backoff)),
                    line("waiting for the lane", level(|s| s.waiting as f64)),
                ],
            ),
            plot("Records done", "records", vec![line("done", level(|s| s.done as f64))]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_takes_the_room_of_a_short_one() {
        let mut timeline = Timeline::default();
        for i in 0..100_000u64 {
            timeline.take(TimelineSample {
                at: Duration::from_millis(i * 100),
                sent: i * 10,
                done: i,
                ..TimelineSample::default()
            });
        }
        assert!(timeline.samples.len() < SAMPLES_MAX);
        let plots = timeline.plots(Duration::from_secs(10_000));
        let rates = &plots[0].lines[0].points;
        assert!(rates.iter().all(|p| (p.1 - 100.0).abs() < 1e-6), "{rates:?}");
    }
}
