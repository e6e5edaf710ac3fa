//! No text makes the parser panic, and what it accepts it can print and read again.

use std::sync::Arc;

use proptest::prelude::*;
use uvmsim::config::diagnostic::Source;
use uvmsim::config::document::Extra;
use uvmsim::config::{Config, schema};

fn read(text: &str, overrides: &[String]) {
    let source = Arc::new(Source {
        name: "p.toml".into(),
        text: text.into(),
    });
    for extra in [Extra::Config, Extra::Validation, Extra::Profile] {
        match Config::from_source(&source, None, overrides, extra) {
            Ok(config) => {
                if let Err(errors) = uvmsim::sweep::plan(&config) {
                    assert!(!errors.render(false).is_empty());
                }
            }
            Err(errors) => assert!(!errors.render(false).is_empty() && !errors.to_string().is_empty()),
        }
    }
    if let Err(errors) = uvmsim::validate::file::parse("p", &source, None, overrides) {
        assert!(!errors.render(false).is_empty());
    }
}

/// Texts that look like the value of some key.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?[0-9]{1,22}(\\.[0-9]{1,4})?".prop_map(|n| n),
        "\"-?[0-9]{0,12}(\\.[0-9]{1,4})? ?(ns|us|s|B|KiB|GiB|TB|GB/s|GHz|TFLOP/s|x)?\"",
        "(true|false|nan|inf|-inf|\\[\\]|\\{\\}|1979-05-27|0x[0-9a-f]{1,20}|1e400)",
        "\"[a-z0-9./µ-]{0,12}\"",
        "\\[[0-9]{1,3}, \"[a-z]{0,4}\"\\]",
        "\\{ from = -?[0-9.]{1,5}, to = [0-9.]{1,5}, (step|count) = [0-9.]{1,4}(, log = true)? \\}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in "(?s).{0,200}", set in ".{0,40}") {
        read(&text, &[set]);
    }

    #[test]
    fn any_value_of_any_key(index in 0..schema::keys().count(), value in value(), sweep: bool) {
        let key = schema::keys().nth(index).unwrap();
        // A grid of 100 000 points is legal, and slow to plan.
        prop_assume!(!(sweep && value.contains("from")));
        let head = if sweep { "[sweep]\n" } else { "" };
        read(&format!("{head}{} = {value}\n", key.path), &[format!("{}={value}", key.path)]);
    }

    #[test]
    fn any_range(value in "\\{ from = -?[0-9.]{1,3}, to = [0-9.]{1,3}, count = [0-9]{1,2}(, log = true)? \\}") {
        read(&format!("[sweep]\nmemory.oversubscription = {value}\n"), &[]);
    }
}
