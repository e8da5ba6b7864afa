//! What happened when: samples of the run, as many as a plot can show.
//!
//! Samples are cumulative counts, so that losing every second one loses no event. When there are
//! too many, every second one goes and the sampling slows down: a run of a minute and one of a
//! week take the same room.

use std::time::Duration;

use tidegate_sim::outcome::{Axis, Plot, PlotLine};

const SAMPLES_MAX: usize = 480;

/// One look at the run. Counts are since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TimelineSample {
    pub(crate) at: Duration,
    pub(crate) sent: u64,
    pub(crate) throttled: u64,
    pub(crate) failed_calls: u64,
    /// Seconds waited on purpose.
    pub(crate) backoff: f64,
    pub(crate) done: u64,
    pub(crate) in_flight: u32,
    /// Calls that wait for their lane.
    pub(crate) waiting: u64,
    pub(crate) rate: Option<f64>,
}

/// The samples of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    samples: Vec<TimelineSample>,
    every: Duration,
}

impl Timeline {
    /// Takes a sample, if it is time for one.
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

    /// The plots of a run that took this long.
    pub(crate) fn plots(&self, took: Duration) -> Vec<Plot> {
        // Rates over bins of about a hundredth of the run, or they are noise.
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
        // A pace that was never near is no limit, and would hide the others.
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
                    // A second of waiting per second is one call that waits.
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
