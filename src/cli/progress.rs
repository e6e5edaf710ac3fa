//! Progress on stderr, if that is a terminal.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sim_core::Time;

use crate::report::table::short_time;
use crate::simulate::Progress;

/// Progress of one simulation.
pub struct Bar {
    bar: ProgressBar,
    started: Instant,
}

impl Bar {
    /// A bar headed by `what`; silent where stderr is no terminal.
    pub fn new(what: &str) -> Bar {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_prefix(what.to_string());
        Bar {
            bar,
            started: Instant::now(),
        }
    }

    /// Seconds since it was made; the bar goes away.
    pub fn finish(self) -> f64 {
        self.bar.finish_and_clear();
        self.started.elapsed().as_secs_f64()
    }
}

impl Progress for Bar {
    fn update(&mut self, simulated: Time, kernels: u64, total: Option<u64>) {
        if let Some(total) = total
            && self.bar.length() != Some(total)
        {
            self.bar.set_length(total);
            // A template that does not parse would only lose the looks.
            if let Ok(style) =
                ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} kernels, {msg}, {eta} left")
            {
                self.bar.set_style(style);
            }
        }
        self.bar.set_position(kernels);
        self.bar
            .set_message(format!("{} simulated", short_time(simulated)));
    }
}

/// Progress over many simulations.
pub fn over(total: usize, what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} simulations, {eta} left") {
        bar.set_style(style);
    }
    bar.set_prefix(what.to_string());
    bar
}
