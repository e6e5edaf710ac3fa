//! Both directions busy: read requests that slip between writes, many at a time.
//!
//! Upstream, writes always wait, so the wire never idles; a read request goes at the first packet border
//! after its tag returns. Downstream, completions are queued at the host, so they run back to back whatever
//! the exact time of the requests. Then each request costs a division, and the completions of all of them
//! are one burst.

use crate::config::Arbiter;
use crate::transfers::{Plan, State};
use crate::wire::Wire;

impl State {
    /// Launches the waiting write and read request and what follows them, up to the first thing that needs a
    /// closer look; false: nothing was done. A write starts or could start at `start`.
    pub(crate) fn interleave(&mut self, plan: &Plan, start: u64, limit: u64) -> bool {
        let (Some(write), Some(read)) = (self.writes.front(), self.reads.front()) else {
            return false;
        };
        let State {
            up: Wire::Slot(up),
            down: Wire::Slot(down),
            ..
        } = &self
        else {
            return false;
        };
        let bulk = plan.stream.bursts
            && plan.arbiter != Arbiter::PostedFirst
            && self.host.plain_reads()
            && self.host.plain_writes()
            && write.address & (plan.write_limit - 1) == 0
            && read.address & (plan.read_limit - 1) == 0
            && up.free == start
            && up.due > start
            && write.ready <= start;
        if !bulk {
            return false;
        }
        let (max, alike) = plan.config.completions.run(self.tags.issued());
        let full = &plan.full_reads[usize::from(max)];
        let slot = up.slot;
        let (write_ticks, request_ticks) = (plan.full_write.slots * slot, full.request.slots * slot);
        let read_ticks = full.completion.slots * full.completions * slot;
        let most = alike.min(read.left >> plan.read_limit.trailing_zeros());
        // The last write is left for the ordinary path, which knows what comes after it.
        let mut writes_left = (write.left >> plan.write_limit.trailing_zeros()).saturating_sub(1);
        let stop = limit.min(up.due);
        let (mut free, mut counter, mut dllps) = (up.free, up.counter, 0);
        let (mut writes, mut reads) = (0, 0);
        let mut wrote_last = self.wrote_last;
        let mut data_free = down.free;
        let to_data = plan.latency + plan.config.host_read.0;
        for tag in self.tags.upcoming(down) {
            if reads == most {
                break;
            }
            let ready = tag.max(read.ready);
            let between = if ready > free {
                (ready - free).div_ceil(write_ticks)
            } else {
                u64::from(plan.arbiter == Arbiter::RoundRobin && !wrote_last)
            };
            let launch = free + between * write_ticks;
            let end = launch + request_ticks;
            if between > writes_left || launch >= stop || end + to_data > data_free {
                break;
            }
            writes_left -= between;
            writes += between;
            reads += 1;
            data_free += read_ticks;
            wrote_last = false;
            free = end;
            if up.cadence.period > 0 {
                counter += full.request.count;
                while counter >= up.cadence.period {
                    counter -= up.cadence.period;
                    free += up.cadence.slots * slot;
                    dllps += 1;
                }
            }
        }
        if reads == 0 {
            return false;
        }
        if let Wire::Slot(up) = &mut self.up {
            up.free = free;
            up.counter = counter;
            up.count.tlps += reads + writes;
            up.count.tlp_slots += reads * full.request.slots + writes * plan.full_write.slots;
            up.count.dllps += dllps * up.cadence.dllps;
            up.count.dllp_slots += dllps * up.cadence.slots;
        }
        self.frontier = free;
        self.wrote_last = false;
        let bytes = writes * plan.write_limit;
        self.payload[0] += bytes;
        if let Some(write) = self.writes.front_mut() {
            write.advance(bytes);
        }
        self.complete_full_reads(full, reads, plan);
        true
    }
}
