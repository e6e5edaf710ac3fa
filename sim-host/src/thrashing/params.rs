//! Parameters of thrashing mitigation (uvm-driver 6.1).

use std::str::FromStr;

use sim_core::Time;

use crate::params::ParamError;

/// How "close in time" adapts to what is seen (uvm-driver 6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AdaptiveLapse {
    /// As the driver does: a comparison of signed with unsigned numbers makes every negative sum of
    /// votes grow the lapse, so that it never shrinks.
    #[default]
    Driver,
    /// As it reads: as many votes against grow it as votes for shrink it.
    Intended,
    /// It stays.
    Off,
}

impl AdaptiveLapse {
    /// The names, for configurations.
    pub const NAMES: &'static [&'static str] = &["driver", "intended", "off"];
}

impl FromStr for AdaptiveLapse {
    type Err = ParamError;
    fn from_str(text: &str) -> Result<Self, ParamError> {
        match text {
            "driver" => Ok(AdaptiveLapse::Driver),
            "intended" => Ok(AdaptiveLapse::Intended),
            "off" => Ok(AdaptiveLapse::Off),
            _ => Err(ParamError {
                name: "thrashing.adaptive_lapse",
                value: text.to_owned(),
                accepted: "driver, intended, off",
            }),
        }
    }
}

/// `uvm_perf_thrashing_*` and `uvm_perf_lapse_vote_threshold`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrashingParams {
    /// Detect and mitigate at all.
    pub enable: bool,
    /// Close events on a page before it thrashes: 1 .. 7.
    pub threshold: u8,
    /// Throttlings of a page before it is pinned: 1 .. 255.
    pub pin_threshold: u8,
    /// Events within this time of each other are close.
    pub lapse: Time,
    /// How long a processor is throttled, in lapses.
    pub nap: u32,
    /// Quiet time after which a block is forgiven, in lapses.
    pub epoch: u32,
    /// How long a page stays pinned, in lapses; 0: for ever.
    pub pin: u32,
    /// How often a block is forgiven.
    pub max_resets: u32,
    /// Votes that change the lapse.
    pub lapse_vote_threshold: u32,
    /// How the lapse adapts.
    pub adaptive_lapse: AdaptiveLapse,
}

/// `uvm_perf_thrashing_lapse_usec`; only this one adapts (uvm-driver 6.4).
pub const DEFAULT_LAPSE: Time = Time::from_us(500);

impl Default for ThrashingParams {
    /// The driver's own defaults (release 595).
    fn default() -> Self {
        ThrashingParams {
            enable: true,
            threshold: 3,
            pin_threshold: 10,
            lapse: DEFAULT_LAPSE,
            nap: 1,
            epoch: 2000,
            pin: 300,
            max_resets: 4,
            lapse_vote_threshold: 32,
            adaptive_lapse: AdaptiveLapse::Driver,
        }
    }
}

impl ThrashingParams {
    /// Checks every range.
    ///
    /// # Errors
    /// The first parameter that is out of its range.
    pub fn validate(&self) -> Result<(), ParamError> {
        let range = |name, value: u64, max: u64, accepted| {
            if (1..=max).contains(&value) {
                Ok(())
            } else {
                Err(ParamError {
                    name,
                    value: value.to_string(),
                    accepted,
                })
            }
        };
        range("thrashing.threshold", self.threshold.into(), 7, "1 .. 7")?;
        range(
            "thrashing.pin_threshold",
            self.pin_threshold.into(),
            255,
            "1 .. 255",
        )?;
        range("thrashing.nap", self.nap.into(), 100, "1 .. 100")?;
        range(
            "thrashing.lapse_vote_threshold",
            self.lapse_vote_threshold.into(),
            u32::MAX.into(),
            "1 ..",
        )?;
        if self.lapse == Time::ZERO || self.lapse > Time::from_us(1_000_000) {
            return Err(ParamError {
                name: "thrashing.lapse",
                value: format!("{:.1}", self.lapse),
                accepted: "more than 0, at most 1 s",
            });
        }
        Ok(())
    }

    /// Throttling period.
    pub fn nap_time(&self) -> Time {
        self.lapse.times(self.nap.into())
    }

    /// Quiet time before forgiveness.
    pub fn epoch_time(&self) -> Time {
        self.lapse.times(self.epoch.into())
    }

    /// How long a pin lasts; `None`: for ever.
    pub fn pin_time(&self) -> Option<Time> {
        (self.pin > 0).then(|| self.lapse.times(self.pin.into()))
    }
}
