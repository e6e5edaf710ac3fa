//! Devices behind a switch.

use sim_core::Time;
use sim_pcie::LinkConfig;
use sim_pcie::switch::{Switch, SwitchOptions};

fn config() -> LinkConfig {
    LinkConfig {
        skp: false,
        ..LinkConfig::default()
    }
}

fn switch(devices: usize, options: SwitchOptions) -> Switch {
    Switch::new(&config(), &vec![config(); devices], options).unwrap()
}

#[test]
fn one_read_takes_two_hops_each_way() {
    let mut link = switch(1, SwitchOptions::default());
    link.read(0, Time::ZERO, 0, 64);
    link.run();
    // Gen4 x16: a request is 6 slots of 130 ticks, a completion 21; each is sent twice, each start on a symbol.
    let symbol = 520u64;
    let hop = |t: u64, slots: u64| t.next_multiple_of(symbol) + slots * 130 + 76_800;
    let latency = 110 * 1024;
    let host = hop(hop(0, 6) + latency, 6) + 358_400;
    let expect = hop(hop(host, 21) + latency, 21);
    assert_eq!(link.done()[0].time, Time(expect));
}

#[test]
fn devices_share_the_upstream_link_evenly() {
    for devices in [1, 2, 4] {
        let mut link = switch(devices, SwitchOptions::default());
        for device in 0..devices {
            link.write(device, Time::ZERO, 0, 1 << 20);
        }
        link.run();
        let ends: Vec<f64> = link.done().iter().map(|d| d.time.as_ns_f64()).collect();
        assert_eq!(ends.len(), devices);
        let last = ends[devices - 1];
        let rate = (devices << 20) as f64 / last;
        println!("{devices} devices: {rate:.2} GB/s in all");
        assert!((26.0..26.54).contains(&rate), "wire limit 26.53: {rate}");
        assert!(ends.iter().all(|end| end / last > 0.99), "{ends:?}");
    }
}

#[test]
fn few_completion_credits_throttle_and_never_stop() {
    let rate = |headers| {
        let options = SwitchOptions {
            completion_headers: Some(headers),
            ..SwitchOptions::default()
        };
        let mut link = switch(2, options);
        link.read(0, Time::ZERO, 0, 1 << 18);
        link.read(1, Time::ZERO, 0x40, 1 << 18);
        link.write(0, Time::ZERO, 0, 1 << 18);
        link.run();
        assert_eq!(link.done().len(), 3);
        (3 << 18) as f64 / link.done()[2].time.as_ns_f64()
    };
    let rates = [1, 4, 16, 256].map(rate);
    println!("{rates:.2?} GB/s");
    assert!(rates.is_sorted() && rates[0] < rates[3] / 4.0, "{rates:?}");
}

#[test]
fn bad_buffers_are_errors() {
    let options = SwitchOptions {
        completion_data: Some(8),
        ..SwitchOptions::default()
    };
    let error = Switch::new(&config(), &[config()], options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "link.switch.completion_data = 8: allowed is at least mps / 16 = 16"
    );
    assert!(Switch::new(&config(), &[], SwitchOptions::default()).is_err());
}
