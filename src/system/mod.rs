//! The simulation: device, driver, link and program around one event queue.
//!
//! [`System::run`] pops events and routes each to the component that asked for it; nothing here
//! models anything. A component that wants something of another one asks through the traits
//! [`sim_gpu::Port`] and [`sim_host::Device`], which [`world`] implements.

mod contents;
pub mod outcome;
pub mod probe;
pub mod program_thread;
pub mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use sim_core::Time;
use sim_core::access::AccessPattern as _;
use sim_core::pages::ByteRange;
use sim_core::stats::TimeHistogram;
use sim_core::tools::ToolsEvent;
use sim_gpu::{Gpu, GpuParams, KernelId, Launch};
use sim_host::policy::UsePlan;
use sim_host::{Advice, CpuAccess, CpuProgress, DriverParams, HostCost, ThreadState, UvmDriver};
use sim_pcie::{Link, LinkConfig};
use thiserror::Error;
use workloads::pattern::KernelPattern;
use workloads::{HostOp, MemAdvise};

pub use outcome::{Outcome, StallShare};
pub use probe::{Probe, Record};
use program_thread::{LAUNCH_QUEUE, ProgramThread, Wait};
use world::{Arrival, DeviceView, Event, World};

/// Events between two reports of progress.
const PROGRESS_INTERVAL: u64 = 1 << 16;

/// Batches in a row that serve nothing and wake nobody: far more than stale entries can fill.
const BARREN_BATCHES: u32 = 100_000;

/// Hears how far a simulation has come.
pub trait Progress {
    /// `simulated` time has passed, `kernels` have finished.
    fn update(&mut self, simulated: Time, kernels: u64);
}

/// Nobody listens.
impl Progress for () {
    fn update(&mut self, _simulated: Time, _kernels: u64) {}
}

/// Why a simulation could not be carried out.
#[derive(Debug, Error)]
pub enum SimError {
    /// The link's parameters contradict each other.
    #[error(transparent)]
    Link(#[from] sim_pcie::LinkConfigError),
    /// The driver's parameters are out of range.
    #[error(transparent)]
    Driver(#[from] sim_host::ParamError),
    /// The program is wrong.
    #[error(transparent)]
    Program(#[from] workloads::ProgramError),
    /// A call of the program was refused by the driver.
    #[error("{call}: {source}")]
    Call {
        /// What the program did.
        call: &'static str,
        /// Why not.
        source: sim_host::HostError,
    },
    /// An invariant of the model is broken: a defect of the simulator.
    #[error("internal error at {at:.3}: {what}")]
    Invariant {
        /// When it was noticed.
        at: Time,
        /// Which.
        what: String,
    },
    /// Nothing can happen any more, but the program has not ended: a defect of the simulator.
    #[error(
        "internal error: nothing can happen after {at:.3}, but {kernels} kernels are not finished; \
         they wait for {pages} pages, the first at {first:#x}"
    )]
    Deadlock {
        /// Time of the last event.
        at: Time,
        /// Kernels launched and not finished.
        kernels: u64,
        /// Pages that parked requests wait for.
        pages: usize,
        /// Address of the first of them.
        first: u64,
    },
}

/// Everything that defines one simulated machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The device.
    pub gpu: GpuParams,
    /// The link.
    pub link: LinkConfig,
    /// The link's way of advancing.
    pub link_exactness: sim_pcie::Exactness,
    /// The driver's parameters.
    pub driver: DriverParams,
    /// What the driver's steps cost.
    pub cost: HostCost,
    /// 2 MiB root chunks of device memory for managed data.
    pub device_chunks: u64,
    /// CPU time of one kernel launch.
    pub launch_call: Time,
    /// Check all invariants after every batch.
    pub check: bool,
    /// Keep a record of every copy and of every batch.
    pub keep_records: bool,
}

/// The driver's word for what the program advises.
fn advice_of(advice: MemAdvise) -> Advice {
    match advice {
        MemAdvise::ReadMostly(on) => Advice::ReadMostly(on),
        MemAdvise::PreferredLocation(place) => Advice::PreferredLocation(place),
        MemAdvise::AccessedBy(processor, true) => Advice::AccessedBy(processor),
        MemAdvise::AccessedBy(processor, false) => Advice::NotAccessedBy(processor),
    }
}

/// One simulation in progress.
pub struct System<'p> {
    gpu: Gpu<KernelPattern>,
    driver: UvmDriver,
    world: World<'p>,
    thread: ProgramThread,
    launch_call: Time,
    check: bool,
    keep_batches: bool,
    last_finish: Time,
    /// Kernels launched before each iteration, and when the last of them had finished.
    iterations: Vec<(u64, Time)>,
    launched: u64,
    /// Batches in a row after which no request had hit, and the hits before them.
    barren_batches: u32,
    /// Migrations handed to streams so far.
    calls_of_streams: u64,
    hits_before: u64,
    kernel_time_resident: Time,
    unknown_kernels: u64,
    capacity_bytes: u64,
    batches: Vec<sim_host::BatchRecord>,
    batch_times: TimeHistogram,
    /// For the probe: calls made, when the call under way began, faults dropped so far.
    calls: u64,
    call_began: Option<Time>,
    dropped: u64,
    /// For the probe: kernels launched and not finished.
    kernels: BTreeMap<KernelId, KernelInfo>,
}

/// What the probe is told of a kernel at its end.
struct KernelInfo {
    name: Arc<str>,
    stream: u32,
    blocks: u64,
    correlation: u64,
}

impl<'p> System<'p> {
    /// An idle machine; `probe` hears what happens.
    ///
    /// # Errors
    /// Parameters of the link or of the driver that are out of range.
    pub fn new(machine: &Machine, probe: Option<&'p mut dyn Probe>) -> Result<System<'p>, SimError> {
        let link = Link::with_exactness(machine.link.clone(), machine.link_exactness)?;
        let flight = machine.link.interrupt_latency();
        Ok(System {
            gpu: Gpu::new(machine.gpu.clone()),
            driver: UvmDriver::new(
                machine.driver.clone(),
                machine.cost.clone(),
                machine.device_chunks,
            )?,
            world: World::new(link, flight, machine.keep_records, probe),
            thread: ProgramThread::default(),
            launch_call: machine.launch_call,
            check: machine.check,
            keep_batches: machine.keep_records,
            last_finish: Time::ZERO,
            iterations: Vec::new(),
            launched: 0,
            barren_batches: 0,
            calls_of_streams: 0,
            hits_before: 0,
            kernel_time_resident: Time::ZERO,
            unknown_kernels: 0,
            capacity_bytes: machine.device_chunks.saturating_mul(sim_core::pages::BLOCK_BYTES),
            batches: Vec::new(),
            batch_times: TimeHistogram::default(),
            calls: 0,
            call_began: None,
            dropped: 0,
            kernels: BTreeMap::new(),
        })
    }

    /// Gives the driver's policies the plan of the program, and news of kernels that start.
    pub fn set_plan(&mut self, plan: Arc<UsePlan>) {
        self.driver.set_plan(plan);
        self.world.watch_kernels = true;
    }

    /// Runs a program to its end.
    ///
    /// # Errors
    /// A program that is wrong, a call that the driver refuses, a broken invariant.
    pub fn run(
        mut self,
        program: impl Iterator<Item = Result<HostOp, workloads::ProgramError>>,
        progress: &mut dyn Progress,
    ) -> Result<Finished, SimError> {
        let mut program = program;
        self.world.events.at(Time::ZERO, Event::Host);
        let mut until_report = PROGRESS_INTERVAL;
        while let Some((now, event)) = self.world.events.pop() {
            self.route(event, now, &mut program)?;
            until_report -= 1;
            if until_report == 0 {
                until_report = PROGRESS_INTERVAL;
                progress.update(now, self.gpu.stats().kernels);
            }
            if self.thread.wait == Wait::Ended
                && self.thread.queued == 0
                && self.thread.gates == 0
                && self.gpu.is_idle()
            {
                return self.finish(now);
            }
        }
        let pages = self.gpu.awaited_pages();
        Err(SimError::Deadlock {
            at: self.world.events.now(),
            kernels: self.thread.queued,
            pages: pages.len(),
            first: pages.first().map_or(0, |page| page.address()),
        })
    }

    fn route(
        &mut self,
        event: Event,
        now: Time,
        program: &mut impl Iterator<Item = Result<HostOp, workloads::ProgramError>>,
    ) -> Result<(), SimError> {
        match event {
            Event::Gpu(event) => self.gpu.handle(event, now, &mut self.world),
            Event::Link { generation } => {
                for arrival in self.world.link_arrivals(generation, now) {
                    match arrival {
                        Arrival::Copy(direction) => self.gpu.transfer_done(direction, now, &mut self.world),
                        Arrival::Remote(waiter) => self.gpu.remote_done(waiter, now, &mut self.world),
                    }
                }
            }
            Event::Interrupt => self.with_driver(now, |driver, now, device| driver.interrupt(now, device))?,
            Event::Driver => self.with_driver(now, |driver, now, device| driver.wake(now, device))?,
            Event::DriverTimer => self.with_driver(now, |driver, now, device| driver.timer(now, device))?,
            Event::PushCompleted(ticket) => {
                self.with_driver(now, |driver, now, device| {
                    driver.push_complete(ticket, now, device);
                })?;
                if self.thread.wait == Wait::Push(ticket) {
                    self.thread.wait = Wait::Running;
                    self.world.events.at(now, Event::Host);
                }
            }
            Event::GateReached { stream, gate } => self.migrate(stream, gate, now)?,
            Event::GatePassed => {
                self.thread.gates -= 1;
                self.last_finish = now;
                self.wake_waiting(now);
            }
            Event::KernelFinished(kernel) => {
                self.record_kernel(kernel, now);
                self.last_finish = now;
                self.thread.queued -= 1;
                let finished = self.launched - self.thread.queued;
                self.world.contents.finished(finished);
                // The thread runs ahead: an iteration begins on the device, when what was launched
                // before it has finished.
                for (before, begins) in self.iterations.iter_mut().rev().take_while(|i| i.0 >= finished) {
                    if *before == finished {
                        *begins = now;
                    }
                }
                self.wake_waiting(now);
            }
            Event::KernelStarted => {
                if let Some(kernel) = self.world.take_started() {
                    self.with_driver(now, |driver, now, device| {
                        driver.kernel_started(kernel.0, now, device);
                    })?;
                }
            }
            Event::Host if self.thread.wait == Wait::Ended => {}
            Event::Host => self.program_step(now, program)?,
        }
        Ok(())
    }

    /// The program's thread goes on if what it waits for has happened.
    fn wake_waiting(&mut self, now: Time) {
        let goes_on = match self.thread.wait {
            Wait::DeviceIdle => self.thread.queued == 0 && self.thread.gates == 0,
            Wait::LaunchQueue => self.thread.queued < LAUNCH_QUEUE,
            Wait::Running | Wait::Ended | Wait::Push(_) => false,
        };
        if goes_on {
            self.thread.wait = Wait::Running;
            self.world.events.at(now, Event::Host);
        }
    }

    /// A migration has its turn in its stream: the runtime's thread carries it out.
    fn migrate(&mut self, stream: u32, gate: u64, now: Time) -> Result<(), SimError> {
        let mut tickets = Vec::new();
        if let Some((range, to)) = self.thread.migrations.remove(&gate) {
            let device = &mut DeviceView {
                gpu: &mut self.gpu,
                world: &mut self.world,
                now,
            };
            let call = "cudaMemPrefetchAsync";
            let moved = self.driver.prefetch(range, to, now, device);
            tickets = moved.map_err(|source| SimError::Call { call, source })?.1;
        }
        self.gpu.open_gate(stream, gate, tickets, now, &mut self.world);
        self.check_host_memory(now)
    }

    fn check_host_memory(&self, _now: Time) -> Result<(), SimError> {
        self.driver.failure().map_or(Ok(()), |source| {
            let call = "managed memory";
            Err(SimError::Call { call, source })
        })
    }

    /// A call of the driver, and what it means for the device: interrupts, and what stalls wait for.
    fn with_driver(
        &mut self,
        now: Time,
        call: impl FnOnce(&mut UvmDriver, Time, &mut DeviceView<'_, '_>),
    ) -> Result<(), SimError> {
        let was_masked = self.driver.interrupt_masked();
        call(
            &mut self.driver,
            now,
            &mut DeviceView {
                gpu: &mut self.gpu,
                world: &mut self.world,
                now,
            },
        );
        self.gpu
            .accounting()
            .set_stall_reason(self.driver.thread_state() as usize, now);
        if was_masked && !self.driver.interrupt_masked() {
            self.gpu.interrupts_unmasked(now, &mut self.world);
        }
        if let Some(batch) = self.driver.take_finished_batch() {
            self.check_host_memory(now)?;
            self.batch_times.add(batch.end - batch.start);
            self.record_overflow(now);
            if self.keep_batches {
                self.batches.push(batch);
            }
            if self.check {
                self.check_invariants(now)?;
            }
            self.check_progress(&batch, now)?;
        }
        Ok(())
    }

    /// A request that no service can satisfy would be replayed for ever.
    fn check_progress(&mut self, batch: &sim_host::BatchRecord, now: Time) -> Result<(), SimError> {
        let hits = self.gpu.stats().replay_hits;
        if batch.pages > 0 || hits != self.hits_before {
            self.hits_before = hits;
            self.barren_batches = 0;
            return Ok(());
        }
        self.barren_batches += 1;
        if self.barren_batches < BARREN_BATCHES {
            return Ok(());
        }
        let pages = self.gpu.awaited_pages();
        let first = pages.first().map_or(0, |page| page.address());
        let what = format!(
            "{BARREN_BATCHES} batches in a row have served nothing; {} pages wait, the first at {first:#x}",
            pages.len()
        );
        Err(SimError::Invariant { at: now, what })
    }

    fn check_invariants(&self, now: Time) -> Result<(), SimError> {
        self.driver
            .check_invariants()
            .map_err(|violation| SimError::Invariant {
                at: now,
                what: violation.to_string(),
            })
    }
}

/// What the probe is told.
impl System<'_> {
    fn record_kernel(&mut self, kernel: KernelId, now: Time) {
        let Some(info) = self.kernels.remove(&kernel) else {
            return;
        };
        let start = self.world.take_kernel_start(kernel).unwrap_or(now);
        self.world.record(&Record::Kernel {
            name: info.name,
            stream: info.stream,
            blocks: info.blocks,
            start,
            end: now,
            correlation: info.correlation,
        });
    }

    fn record_overflow(&mut self, now: Time) {
        if !self.world.probed() {
            return;
        }
        let (_, dropped) = self.gpu.fault_entries();
        if dropped > self.dropped {
            self.world.record(&Record::Tools(ToolsEvent::FaultBufferOverflow {
                dropped: dropped - self.dropped,
                time: now,
            }));
            self.dropped = dropped;
        }
    }

    /// A call of the program's thread has been carried out; it returns at `until`.
    fn record_call(&mut self, name: &'static str, range: Option<(bool, ByteRange)>, now: Time, until: Time) {
        let start = self.call_began.take().unwrap_or(now);
        self.world.record(&Record::Call {
            name,
            start,
            end: until,
            correlation: self.calls,
        });
        if let Some((allocated, range)) = range {
            self.world.record(&Record::ManagedRange {
                allocated,
                address: range.start,
                bytes: range.bytes,
                time: start,
                correlation: self.calls,
            });
        }
    }
}

impl System<'_> {
    /// The program's thread goes on until it has to wait or time has to pass.
    fn program_step(
        &mut self,
        now: Time,
        program: &mut impl Iterator<Item = Result<HostOp, workloads::ProgramError>>,
    ) -> Result<(), SimError> {
        loop {
            if let Some(op) = self.thread.postponed.take() {
                if !self.carry_out(op, now)? {
                    return Ok(());
                }
                continue;
            }
            let Some(op) = program.next() else {
                self.thread.wait = Wait::Ended;
                self.thread.ended = Some(now);
                if self.thread.queued == 0 {
                    // Nothing else will: the end of the program has to be noticed.
                    self.world.events.at(now, Event::Host);
                }
                return Ok(());
            };
            if !self.carry_out(op?, now)? {
                return Ok(());
            }
        }
    }

    /// Carries out one operation; false if the thread cannot go on at `now`.
    fn carry_out(&mut self, op: HostOp, now: Time) -> Result<bool, SimError> {
        let call = self.world.probed().then(|| op.runtime_call()).flatten();
        if call.is_some() {
            self.call_began.get_or_insert(now);
        }
        if op.synchronises() && self.thread.queued + self.thread.gates > 0 {
            self.thread.wait = Wait::DeviceIdle;
            self.thread.postponed = Some(op);
            return Ok(false);
        }
        let device = &mut DeviceView {
            gpu: &mut self.gpu,
            world: &mut self.world,
            now,
        };
        let refused = |call: &'static str| move |source| SimError::Call { call, source };
        let mut until = now;
        let mut range_event = None;
        match op {
            HostOp::ManagedAlloc(range) => {
                range_event = Some((true, range));
                until = self
                    .driver
                    .managed_alloc(range, now, device)
                    .map_err(refused("cudaMallocManaged"))?;
            }
            HostOp::ManagedFree(range) => {
                range_event = Some((false, range));
                until = self
                    .driver
                    .managed_free(range, now, device)
                    .map_err(refused("cudaFree"))?;
            }
            HostOp::DeviceAlloc(range) => {
                until = self
                    .driver
                    .device_alloc(range, now, device)
                    .map_err(refused("cudaMalloc"))?;
            }
            HostOp::DeviceFree(range) => {
                until = self
                    .driver
                    .managed_free(range, now, device)
                    .map_err(refused("cudaFree"))?;
            }
            HostOp::Contents { range, live } => {
                self.world.contents.note(range, live, self.launched);
                self.world.contents.finished(self.launched - self.thread.queued);
            }
            HostOp::CpuTouch {
                range,
                write,
                concurrent,
            } => {
                let access = self.thread.access.get_or_insert(CpuAccess::new(range, write));
                let progress = self.driver.cpu_access(access, now, device);
                match progress.map_err(refused("a CPU access"))? {
                    CpuProgress::Done(at) => {
                        self.thread.access = None;
                        until = at;
                    }
                    CpuProgress::Throttled(at) => {
                        self.thread.postponed = Some(HostOp::CpuTouch {
                            range,
                            write,
                            concurrent,
                        });
                        self.world.events.at(at, Event::Host);
                        return Ok(false);
                    }
                    CpuProgress::Wait(_, ticket) => {
                        self.thread.wait = Wait::Push(ticket);
                        self.thread.postponed = Some(HostOp::CpuTouch {
                            range,
                            write,
                            concurrent,
                        });
                        return Ok(false);
                    }
                }
                self.check_host_memory(now)?;
            }
            HostOp::CopyToDevice(range) => {
                let (end, _) = self
                    .driver
                    .copy_to_device(range, now, device)
                    .map_err(refused("cudaMemcpyAsync"))?;
                until = end;
            }
            HostOp::Launch { kernel, stream } => {
                if self.thread.queued >= LAUNCH_QUEUE {
                    self.thread.wait = Wait::LaunchQueue;
                    self.thread.postponed = Some(HostOp::Launch { kernel, stream });
                    return Ok(false);
                }
                self.thread.queued += 1;
                self.launched += 1;
                self.kernel_time_resident += kernel.duration;
                self.unknown_kernels += u64::from(!kernel.known_class);
                let launch = Launch {
                    stream,
                    pattern: kernel.pattern,
                    blocks_per_sm: kernel.blocks_per_sm,
                    duration: kernel.duration,
                };
                let info = self.world.probed().then(|| KernelInfo {
                    name: kernel.name,
                    stream,
                    blocks: launch.pattern.blocks(),
                    correlation: self.calls + 1,
                });
                let id = self.gpu.launch(launch, now, &mut self.world);
                if let Some(info) = info {
                    self.kernels.insert(id, info);
                }
                until = now + self.launch_call;
            }
            HostOp::Synchronize => {}
            HostOp::IterationStart(_) => self.iterations.push((self.launched, now)),
            HostOp::Prefetch { range, to, stream } => {
                let gate = self.calls_of_streams;
                self.calls_of_streams += 1;
                self.thread.gates += 1;
                self.thread.migrations.insert(gate, (range, to));
                self.gpu.add_gate(stream, gate, now, &mut self.world);
                until = now + self.launch_call;
            }
            HostOp::Advise { range, advice } => {
                until = self
                    .driver
                    .advise(range, advice_of(advice), now, device)
                    .map_err(refused("cudaMemAdvise"))?;
            }
            HostOp::Discard { range, unmap } => {
                until = self
                    .driver
                    .discard(range, unmap, now, device)
                    .map_err(refused("a discard"))?;
            }
        }
        if let Some(name) = call {
            self.calls += 1;
            self.record_call(name, range_event, now, until);
        }
        if until > now {
            self.world.events.at(until, Event::Host);
            return Ok(false);
        }
        Ok(true)
    }

    fn finish(mut self, now: Time) -> Result<Finished, SimError> {
        let end = self.last_finish.max(self.thread.ended.unwrap_or(now));
        self.check_invariants(now)?;
        let late = self.world.events.late_schedules();
        if late > 0 {
            let what = format!("{late} events were scheduled in the past");
            return Err(SimError::Invariant { at: now, what });
        }
        self.gpu.accounting().settle(now);
        let sms = self.gpu.params().sms;
        let accounting = self.gpu.accounting();
        if accounting.total() != u128::from(now.0) * u128::from(sms) {
            let what = "SM time is not accounted for".to_owned();
            return Err(SimError::Invariant { at: now, what });
        }
        let time = self.driver.thread_time(now);
        if time.iter().copied().sum::<Time>() != now {
            let what = "the driver thread's time is not accounted for".to_owned();
            return Err(SimError::Invariant { at: now, what });
        }
        let stalled = ThreadState::ALL
            .iter()
            .map(|state| StallShare {
                reason: state.name(),
                sm_ticks: accounting.stalled[*state as usize],
            })
            .collect();
        let working = accounting.migrating_sm_computing + accounting.migrating_sm_stalled;
        let hidden_share = (working > 0).then(|| accounting.migrating_sm_computing as f64 / working as f64);
        let computing = accounting.computing;
        let idle = accounting.idle;
        let migrating = Time(accounting.migrating as u64);
        let (fault_entries, fault_entries_dropped) = self.gpu.fault_entries();
        let outcome = Outcome {
            simulated: end,
            iteration_starts: self.iterations.iter().map(|iteration| iteration.1).collect(),
            kernels: self.gpu.stats().kernels,
            unknown_kernels: self.unknown_kernels,
            kernel_time_resident: self.kernel_time_resident,
            sms,
            computing,
            stalled,
            idle,
            migrating,
            hidden_share,
            traffic: self.world.traffic,
            dead_bytes: self.world.contents.dead_bytes(),
            link_busy: self.world.link_busy(now),
            batch_time_median: self.batch_times.quantile(0.5),
            batch_time_p99: self.batch_times.quantile(0.99),
            driver: self.driver.stats().clone(),
            driver_time: ThreadState::ALL
                .iter()
                .map(|s| (s.name(), time[*s as usize]))
                .collect(),
            fault_entries,
            fault_entries_dropped,
            missed_accesses: self.gpu.misses(),
            replays: self.gpu.stats().replays,
            capacity_bytes: self.capacity_bytes,
            events: self.world.events.processed(),
            ties: self.world.events.ties(),
        };
        Ok(Finished {
            outcome,
            copies: self.world.copies,
            batches: self.batches,
        })
    }
}

/// A finished simulation: the outcome and, if asked for, the records.
#[derive(Debug)]
pub struct Finished {
    /// All figures.
    pub outcome: Outcome,
    /// Every copy in order of completion, if the machine keeps them.
    pub copies: Option<Vec<sim_gpu::gpu::CopyRecord>>,
    /// Every batch of the driver, if the machine keeps them.
    pub batches: Vec<sim_host::BatchRecord>,
}
