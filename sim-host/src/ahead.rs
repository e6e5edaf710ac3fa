//! Work ahead of need: pre-evictions and fetches that a policy asks for.
//!
//! It is done by a thread beside the bottom half (as the prefetch thread of `DeepUM`), whose time is counted
//! apart. Its pushes go to the same in-order channels as everything else; no batch waits for them but
//! by the order of a channel.

use sim_core::Time;
use sim_core::pages::PageMask;
use sim_core::push::Cause;

use crate::device::Device;
use crate::policy::state::view;
use crate::service::{Cursor, Memory};
use crate::stats::BatchRecord;

/// Blocks fetched ahead before their arrival is awaited: enough to keep the link busy, few enough that
/// a demand copy finds a short queue.
const GROUP: u32 = 4;

impl Memory {
    /// What policies want done at the end of a batch, or when a kernel starts.
    pub fn work_ahead<D: Device>(&mut self, now: Time, device: &mut D) {
        // The replay of a batch does not wait for any of this.
        let tracker = self.batch_tracker;
        let start = now.max(self.policies.ahead_free);
        self.policies.protect = true;
        let at = self.pre_evict(start, device);
        let at = self.fetch_ahead(at, device);
        self.policies.protect = false;
        self.stats.ahead_time += at - start;
        self.policies.ahead_free = at;
        self.batch_tracker = tracker;
    }

    fn pre_evict<D: Device>(&mut self, now: Time, device: &mut D) -> Time {
        let mut record = BatchRecord::default();
        let mut cursor = Cursor::new(now, device, &mut record);
        for _ in 0..self.pmm.capacity() {
            let view = view!(self);
            let Some(victim) = self.policies.eviction.pre_evict(&view) else {
                break;
            };
            let owner = view.is_evictable(victim).then(|| view.owner(victim)).flatten();
            if owner.is_none_or(|block| self.policies.served.contains(&block)) {
                self.stats.policy_refusals += 1;
                break;
            }
            if self.evict_chunk(victim, None, &mut cursor).is_none() {
                break;
            }
            self.stats.pre_evictions += 1;
        }
        cursor.at
    }

    fn fetch_ahead<D: Device>(&mut self, now: Time, device: &mut D) -> Time {
        if self.policies.ahead_waits.is_some() {
            return now;
        }
        let mut record = BatchRecord::default();
        let mut cursor = Cursor::new(now, device, &mut record);
        cursor.notify = true;
        let mut made = 0;
        while made < GROUP && self.policies.ahead_budget > 0 {
            let view = view!(self);
            let Some((block, pages)) = self.policies.prefetch.ahead(&view) else {
                break;
            };
            self.policies.ahead_budget -= 1;
            let pages = (pages & view.valid(block)).without(&view.resident(block));
            let pages = pages.without(&self.thrashing.pages(block));
            if pages.is_empty() {
                continue;
            }
            cursor.at += self.cost.block_fixed;
            let none = PageMask::EMPTY;
            let arrives = self.make_resident(block, &none, &pages, Cause::Coherence, &mut cursor);
            if arrives.is_none() {
                self.stats.policy_refusals += 1;
                break;
            }
            self.policies.ahead_waits = arrives;
            let view = view!(self);
            self.policies.eviction.served(block, &view);
            self.stats.ahead_blocks += 1;
            made += 1;
        }
        cursor.at
    }
}
