//! What a published curve measures, taken from a result of ours.

use sim_core::pages::PAGE_BYTES;
use sim_core::push::{Cause, Direction};
use sim_host::BatchRecord;

use crate::simulate::{CopyRow, RunResult};

macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)*) => {
        /// What is compared.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Metric {
            $($(#[doc = $doc])+ $variant,)*
        }

        impl Metric {
            /// Every metric.
            pub const ALL: &'static [Metric] = &[$(Metric::$variant),*];

            /// Its name in files.
            pub fn name(self) -> &'static str {
                match self {
                    $(Metric::$variant => $name,)*
                }
            }
        }
    };
}

metrics! {
    /// Time over the time of the reference run (everything resident, or the curve's own).
    Slowdown = "slowdown";
    /// Time of the whole program, ms.
    SimulatedMs = "simulated_ms";
    /// Time from the first iteration to the end, ms: without the CPU's work before it.
    KernelsMs = "kernels_ms";
    /// Mean time of an iteration after the first, ms.
    IterationMs = "iteration_ms";
    /// Bytes of the kernel's arrays over the mean time of an iteration after the first, 10^9 B/s.
    BandwidthGbPerS = "bandwidth_gb_per_s";
    /// Bytes to the device, GiB.
    H2dGib = "h2d_gib";
    /// Bytes to the host, GiB.
    D2hGib = "d2h_gib";
    /// Bytes to the device less bytes to the host, GiB.
    NetGib = "net_gib";
    /// Bytes in both directions, 10^9 B.
    MigratedGb = "migrated_gb";
    /// Copies to the device.
    H2dCopies = "h2d_copies";
    /// Copies to the host.
    D2hCopies = "d2h_copies";
    /// Copies in both directions, 10^7.
    Copies1e7 = "copies_1e7";
    /// Share of bytes to the device that faulted themselves.
    DemandShare = "demand_share";
    /// Batches of the driver.
    Batches = "batches";
    /// Visits of the driver to a block, 10^3: what profilers count as fault groups.
    BlockServicesK = "block_services_k";
    /// Visits of the driver to blocks.
    BlockServices = "block_services";
    /// Root chunks evicted.
    Evictions = "evictions";
    /// Share of migration time that is hidden behind computation.
    HiddenShare = "hidden_share";
    /// Size of the x-th copy into the lowest block, KiB.
    BlockCopyKib = "block_copy_kib";
    /// Bytes to the device x ms after the first fault, 10^6 B.
    CumulativeH2dMb = "cumulative_h2d_mb";
    /// The line through batch time against copied bytes, at x KB (1000 B): us.
    BatchUsAtKb = "batch_us_at_kb";
    /// Its slope, us per KB.
    BatchSlope = "batch_slope_us_per_kb";
    /// Median time of batches with x evictions, us.
    BatchUsAtEvictions = "batch_us_at_evictions";
    /// Mean of distinct pages of a batch.
    UniquePagesPerBatch = "unique_pages_per_batch";
    /// Mean of blocks of a batch.
    BlocksPerBatch = "blocks_per_batch";
}

/// The least batches that a line is fitted to.
const LEAST_BATCHES: usize = 10;

impl Metric {
    /// The metric called `name`.
    pub fn named(name: &str) -> Option<Metric> {
        Metric::ALL.iter().copied().find(|metric| metric.name() == name)
    }

    /// Does it look at batches or copies one by one?
    pub fn needs_records(self) -> bool {
        use Metric::{
            BatchSlope, BatchUsAtEvictions, BatchUsAtKb, BlockCopyKib, BlocksPerBatch, CumulativeH2dMb,
            UniquePagesPerBatch,
        };
        matches!(
            self,
            BlockCopyKib
                | CumulativeH2dMb
                | BatchUsAtKb
                | BatchSlope
                | BatchUsAtEvictions
                | UniquePagesPerBatch
                | BlocksPerBatch
        )
    }

    /// Does it need a reference run?
    pub fn needs_reference(self) -> bool {
        self == Metric::Slowdown
    }

    /// Does its value depend on x beyond the config?
    pub fn takes_x(self) -> bool {
        use Metric::{BatchUsAtEvictions, BatchUsAtKb, BlockCopyKib, CumulativeH2dMb};
        matches!(
            self,
            BlockCopyKib | CumulativeH2dMb | BatchUsAtKb | BatchUsAtEvictions
        )
    }

    /// Our value.
    ///
    /// # Errors
    /// Where the result holds no such value, in words.
    pub fn of(self, own: &RunResult, reference: Option<&RunResult>, x: Option<f64>) -> Result<f64, String> {
        let s = &own.summary;
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        let (h2d, d2h) = (s.bytes("host_to_device"), s.bytes("device_to_host"));
        let copies = s.copies("host_to_device") + s.copies("device_to_host");
        let x = || x.ok_or_else(|| "x is no number".to_string());
        Ok(match self {
            Metric::Slowdown => {
                let reference = reference.ok_or("no reference run")?;
                s.simulated_ns / reference.summary.simulated_ns
            }
            Metric::SimulatedMs => s.simulated_ns / 1e6,
            Metric::KernelsMs => {
                (s.simulated_ns - s.iteration_start_ns.first().copied().unwrap_or(0.0)) / 1e6
            }
            Metric::IterationMs => s.iteration_ns() / 1e6,
            Metric::BandwidthGbPerS => s.footprint_bytes as f64 / s.iteration_ns(),
            Metric::H2dGib => gib(h2d),
            Metric::D2hGib => gib(d2h),
            Metric::NetGib => gib(h2d) - gib(d2h),
            Metric::MigratedGb => (h2d + d2h) as f64 / 1e9,
            Metric::H2dCopies => s.copies("host_to_device") as f64,
            Metric::D2hCopies => s.copies("device_to_host") as f64,
            Metric::Copies1e7 => copies as f64 / 1e7,
            Metric::DemandShare => {
                let demand: u64 = s
                    .traffic
                    .iter()
                    .filter(|t| t.direction == "host_to_device" && t.cause == "coherence")
                    .map(|t| t.bytes)
                    .sum();
                if h2d == 0 {
                    return Err("nothing moved to the device".into());
                }
                demand as f64 / h2d as f64
            }
            Metric::Batches => s.counter("batches") as f64,
            Metric::BlockServicesK => s.counter("block_services") as f64 / 1e3,
            Metric::BlockServices => s.counter("block_services") as f64,
            Metric::Evictions => s.counter("evictions") as f64,
            Metric::HiddenShare => s.hidden_share.ok_or("nothing migrated")?,
            Metric::BlockCopyKib => copy_of_lowest_block(&own.copies, x()?)?,
            Metric::CumulativeH2dMb => {
                let start = own.batches.first().ok_or("no batch")?.start;
                let until = start.as_ns_f64() + x()? * 1e6;
                let moved: u64 = own
                    .copies
                    .iter()
                    .filter(|c| c.direction == Direction::HostToDevice && c.end.as_ns_f64() <= until)
                    .map(|c| u64::from(c.pages) * PAGE_BYTES)
                    .sum();
                moved as f64 / 1e6
            }
            Metric::BatchUsAtKb => {
                let (constant, slope) = line(&own.batches)?;
                constant + slope * x()?
            }
            Metric::BatchSlope => line(&own.batches)?.1,
            Metric::BatchUsAtEvictions => {
                let wanted = x()?;
                let times = own
                    .batches
                    .iter()
                    .filter(|b| f64::from(b.evictions).total_cmp(&wanted).is_eq())
                    .map(duration_us)
                    .collect();
                median(times).ok_or_else(|| format!("no batch has {wanted} evictions"))?
            }
            Metric::UniquePagesPerBatch => mean(&own.batches, |b| f64::from(b.unique_pages))?,
            Metric::BlocksPerBatch => mean(&own.batches, |b| f64::from(b.blocks))?,
        })
    }
}

fn duration_us(batch: &BatchRecord) -> f64 {
    (batch.end - batch.start).as_us_f64()
}

fn mean(batches: &[BatchRecord], of: impl Fn(&BatchRecord) -> f64) -> Result<f64, String> {
    if batches.is_empty() {
        return Err("no batch".into());
    }
    Ok(batches.iter().map(of).sum::<f64>() / batches.len() as f64)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => None,
        _ if n.is_multiple_of(2) => Some(f64::midpoint(values[n / 2 - 1], values[n / 2])),
        _ => Some(values[n / 2]),
    }
}

/// Least squares of batch time (us) on copied KB: (constant, slope).
fn line(batches: &[BatchRecord]) -> Result<(f64, f64), String> {
    let points: Vec<(f64, f64)> = batches
        .iter()
        .filter(|b| b.copied_pages > 0)
        .map(|b| {
            (
                u64::from(b.copied_pages) as f64 * PAGE_BYTES as f64 / 1e3,
                duration_us(b),
            )
        })
        .collect();
    if points.len() < LEAST_BATCHES {
        return Err(format!("only {} batches copied anything", points.len()));
    }
    let n = points.len() as f64;
    let (mx, my) = (
        points.iter().map(|p| p.0).sum::<f64>() / n,
        points.iter().map(|p| p.1).sum::<f64>() / n,
    );
    let sxx: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let sxy: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    if sxx <= 0.0 {
        return Err("all batches copied equally much: no line".into());
    }
    let slope = sxy / sxx;
    Ok((my - slope * mx, slope))
}

/// Size of the x-th (from 1) copy into the lowest block that anything is copied into, KiB.
fn copy_of_lowest_block(copies: &[CopyRow], x: f64) -> Result<f64, String> {
    let block = |copy: &CopyRow| copy.first_page / sim_core::pages::PAGES_PER_BLOCK as u64;
    let incoming = || {
        copies
            .iter()
            .filter(|c| c.direction == Direction::HostToDevice && c.cause != Cause::User)
    };
    let lowest = incoming().map(block).min().ok_or("no copy to the device")?;
    let index = if x >= 1.0 && x.fract() == 0.0 {
        x as usize - 1
    } else {
        return Err("x counts from 1".into());
    };
    let copy = incoming()
        .filter(|c| block(c) == lowest)
        .nth(index)
        .ok_or("the block has fewer copies")?;
    Ok(f64::from(copy.pages) * PAGE_BYTES as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim_core::Time;

    fn batch(us: u64, pages: u32, evictions: u32) -> BatchRecord {
        BatchRecord {
            start: Time::from_us(10),
            end: Time::from_us(10 + us),
            copied_pages: pages,
            evictions,
            ..BatchRecord::default()
        }
    }

    #[test]
    fn a_line_is_found_again() {
        // 100 us + 1000 us per 250 pages of 4.096 KB.
        let batches: Vec<_> = (1..20).map(|i| batch(100 + 4 * i, i as u32, 0)).collect();
        let (constant, slope) = line(&batches).unwrap();
        assert!((constant - 100.0).abs() < 1e-9 && (slope - 4.0 / 4.096).abs() < 1e-9);
        assert!(line(&batches[..5]).is_err());
    }

    #[test]
    fn medians_by_evictions() {
        let own = RunResult {
            batches: vec![batch(5, 1, 0), batch(100, 1, 2), batch(300, 1, 2)],
            ..Default::default()
        };
        assert_eq!(Metric::BatchUsAtEvictions.of(&own, None, Some(2.0)), Ok(200.0));
        assert!(Metric::BatchUsAtEvictions.of(&own, None, Some(3.0)).is_err());
        assert!(Metric::BatchUsAtEvictions.of(&own, None, None).is_err());
    }

    #[test]
    fn copies_of_the_lowest_block_in_order() {
        let copy = |page, pages| CopyRow {
            start: Time::ZERO,
            end: Time::ZERO,
            direction: Direction::HostToDevice,
            cause: Cause::Coherence,
            first_page: page,
            pages,
        };
        let copies = [copy(600, 9), copy(0, 1), copy(700, 9), copy(1, 15)];
        assert_eq!(copy_of_lowest_block(&copies, 1.0), Ok(4.0));
        assert_eq!(copy_of_lowest_block(&copies, 2.0), Ok(60.0));
        assert!(copy_of_lowest_block(&copies, 3.0).is_err());
        assert!(copy_of_lowest_block(&copies, 0.5).is_err());
    }

    #[test]
    fn names_are_unique() {
        for metric in Metric::ALL {
            assert_eq!(Metric::named(metric.name()), Some(*metric));
        }
    }
}
