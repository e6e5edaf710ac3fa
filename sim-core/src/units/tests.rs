use proptest::prelude::*;

use super::*;

#[test]
fn reads_what_people_write() {
    assert_eq!("24 GiB".parse(), Ok(Bytes(24 << 30)));
    assert_eq!("24GB".parse(), Ok(Bytes(24_000_000_000)));
    assert_eq!(" 1_024 B ".parse(), Ok(Bytes(1024)));
    assert_eq!("9.6 GiB".parse(), Ok(Bytes(10_307_921_510))); // 10307921510.4
    assert_eq!("+0.5 KiB".parse(), Ok(Bytes(512)));
    assert_eq!("25.6 GB/s".parse(), Ok(Bandwidth(25_600_000_000)));
    assert_eq!("1.41 GHz".parse(), Ok(Hertz(1_410_000_000)));
    assert_eq!("45 us".parse(), Ok(Time::from_us(45)));
    assert_eq!("45 µs".parse(), Ok(Time::from_us(45)));
    assert_eq!("0.0009765625 ns".parse(), Ok(Time(1)));
    assert_eq!("0 s".parse(), Ok(Time::ZERO));
}

#[test]
fn prints_exactly() {
    assert_eq!(Bytes(24 << 30).to_string(), "24 GiB");
    assert_eq!(Bytes(3 << 29).to_string(), "1.5 GiB");
    assert_eq!(Bytes(10_307_921_510).to_string(), "10307921510 B");
    assert_eq!(format!("{:.1}", Bytes(10_307_921_510)), "9.6 GiB");
    assert_eq!(Bytes(0).to_string(), "0 B");
    assert_eq!(Bandwidth(25_600_000_000).to_string(), "25.6 GB/s");
    assert_eq!(Bandwidth(1024).to_string(), "1.024 KB/s");
    assert_eq!(Hertz(1_410_000_000).to_string(), "1.41 GHz");
    assert_eq!(Time::from_us(45).to_string(), "45 us");
    assert_eq!(Time(1).to_string(), "0.0009765625 ns");
    assert_eq!(format!("{:.2}", Time::from_ns(1_234_567)), "1.23 ms");
}

#[test]
fn errors_say_what_is_accepted() {
    let error = |text: &str| text.parse::<Bytes>().unwrap_err();
    assert!(matches!(error("24"), UnitError::MissingUnit { .. }));
    assert!(matches!(
        error("24 ns"),
        UnitError::WrongKind {
            found: Kind::Time,
            ..
        }
    ));
    assert!(matches!(error("24 gigs"), UnitError::UnknownUnit { .. }));
    assert!(matches!(error("-1 B"), UnitError::Negative { .. }));
    assert!(matches!(error("99999999 TiB"), UnitError::Overflow { .. }));
    assert!(matches!(
        error("99999999999999999999999999999999999999999 B"),
        UnitError::Overflow { .. }
    ));
    for text in [
        "", "NaN B", "inf GB", "1.2.3 B", ". B", "1. B", ".5 B", "1__0 B", "_1 B", "GiB", "-",
    ] {
        assert!(matches!(error(text), UnitError::NotANumber { .. }), "{text}");
    }
    assert_eq!(
        error("24 us").to_string(),
        "`us` in `24 us` is a unit of time: expected a size such as \"24 GiB\", \
         in B, KB, MB, GB, TB, KiB, MiB, GiB, TiB"
    );
    assert_eq!(
        "99999999 s".parse::<Time>().unwrap_err().to_string(),
        "`99999999 s` is too large: the largest time is 18014398 s"
    );
    assert_eq!(error("24 us").kind().units().next(), Some("B"));
}

#[test]
fn serde_uses_strings() {
    assert_eq!(serde_json::to_string(&Bytes(3 << 29)).unwrap(), "\"1.5 GiB\"");
    assert_eq!(
        serde_json::from_str::<Time>("\"2 us\"").unwrap(),
        Time::from_us(2)
    );
    for number in ["24", "-24", "1.5"] {
        let error = serde_json::from_str::<Bytes>(number).unwrap_err().to_string();
        assert!(error.contains("24 GiB"), "{error}");
    }
}

#[test]
fn time_for_rounds_up() {
    let rate = Bandwidth::from_gb_per_s(3);
    assert_eq!(rate.time_for(Bytes(3)), Time::from_ns(1));
    assert_eq!(rate.time_for(Bytes(1)), Time(342)); // 341.33
    assert_eq!(rate.time_for(Bytes(0)), Time::ZERO);
    assert_eq!(Bandwidth(0).time_for(Bytes(1)), Time::MAX);
    assert_eq!(Bandwidth(1).time_for(Bytes::MAX), Time::MAX);
    assert_eq!(rate.bytes_in(Time(341)), Bytes(0));
    assert_eq!(rate.bytes_in(Time(342)), Bytes(1));
}

proptest! {
    #[test]
    fn printing_round_trips(value in prop_oneof![any::<u64>(), 0u64..10_000, (0u32..64).prop_map(|b| 1 << b)]) {
        prop_assert_eq!(Bytes(value).to_string().parse(), Ok(Bytes(value)));
        prop_assert_eq!(Bandwidth(value).to_string().parse(), Ok(Bandwidth(value)));
        prop_assert_eq!(Hertz(value).to_string().parse(), Ok(Hertz(value)));
        prop_assert_eq!(Time(value).to_string().parse(), Ok(Time(value)));
    }

    #[test]
    fn no_text_panics(text in prop_oneof![".*", "[-+]?[0-9_.]{0,50} ?(B|GiB|us|GB/s|GHz|s|x)?"]) {
        let _ = text.parse::<Bytes>().map_err(|e| e.to_string());
        let _ = text.parse::<Bandwidth>().map_err(|e| e.to_string());
        let _ = text.parse::<Time>().map_err(|e| e.to_string());
        let _ = text.parse::<Hertz>().map_err(|e| e.to_string());
    }

    #[test]
    fn decimals_round_to_the_nearest(whole in 0u64..1000, thousandths in 0u64..1000) {
        let text = format!("{whole}.{thousandths:03} KiB");
        let exact = (whole * 1000 + thousandths) * 1024;
        prop_assert_eq!(text.parse(), Ok(Bytes((exact + 500) / 1000)));
    }

    #[test]
    fn time_and_bytes_invert(rate in 1u64.., bytes in 0u64..1 << 50) {
        let (rate, bytes) = (Bandwidth(rate), Bytes(bytes));
        let time = rate.time_for(bytes);
        prop_assume!(time < Time::MAX);
        prop_assert!(rate.bytes_in(time) >= bytes);
        prop_assert!(time == Time::ZERO || rate.bytes_in(Time(time.0 - 1)) < bytes);
    }
}
