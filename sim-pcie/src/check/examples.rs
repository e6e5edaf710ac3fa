//! Worked examples, JSON: exact timings of small scenarios, each run again with the parameters that the file
//! gives and compared value by value. A key that its example does not use is an error, so that nothing in a
//! file goes unchecked.

use super::scenarios::{Given, Inputs, example, inputs};
use super::{CheckError, CheckReport, Mismatch};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use sim_core::time::TICKS_PER_NS;

/// Equal, numbers to twelve digits: whole ones are exact below 2^53.
fn equal(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        _ => match (
            expected.as_u64(),
            actual.as_u64(),
            expected.as_f64(),
            actual.as_f64(),
        ) {
            (Some(a), Some(b), ..) => a == b,
            (_, _, Some(a), Some(b)) => (a - b).abs() <= 1e-12 * a.abs(),
            _ => expected == actual,
        },
    }
}

/// An object inside the results has results, and prose of how they come about.
const NESTED: Inputs = Inputs {
    parameters: &[],
    other: &["closed_form"],
};

fn list(keys: &[&str]) -> String {
    if keys.is_empty() {
        "none".into()
    } else {
        keys.join(", ")
    }
}

/// Compares the results in `expected`, by key; each is one check.
fn compare(
    expected: &Value,
    actual: &Value,
    inputs: &Inputs,
    path: &str,
    line: usize,
    report: &mut CheckReport,
) -> Result<(), CheckError> {
    let Some(entries) = expected.as_object() else {
        return Err(CheckError::Json(format!(
            "line {line}: {path}: an object was expected"
        )));
    };
    let is_input = |key: &str| inputs.parameters.contains(&key) || inputs.other.contains(&key);
    for (key, value) in entries.iter().filter(|(key, _)| !is_input(key)) {
        let here = format!("{path}.{key}");
        let Some(found) = actual.get(key) else {
            let results = actual.as_object().into_iter().flatten();
            let results: Vec<_> = results.map(|(key, _)| key.as_str()).collect();
            return Err(CheckError::Json(format!(
                "line {line}: {here}: not used here; results: {}; parameters: {}; prose and rows: {}",
                list(&results),
                list(inputs.parameters),
                list(inputs.other)
            )));
        };
        if value.is_object() {
            compare(value, found, &NESTED, &here, line, report)?;
        } else if equal(value, found) {
            report.passed += 1;
        } else {
            report.fail(Mismatch {
                line,
                column: here,
                expected: value.to_string(),
                actual: found.to_string(),
            });
        }
    }
    Ok(())
}

/// Checks worked examples: an object whose keys begin with `ex1` to `ex12`, `tick_ns` and `notes`.
///
/// # Errors
/// No JSON, a key that is not known or not used by its example, a parameter that no link has.
pub(super) fn check(text: &str) -> Result<CheckReport, CheckError> {
    // For the position of a mistake in the text.
    serde_json::from_str::<IgnoredAny>(text).map_err(|e| CheckError::Json(e.to_string()))?;
    let all: Map<String, Value> = serde_json::from_str(text).map_err(|e| CheckError::Json(e.to_string()))?;
    let mut report = CheckReport::default();
    for (key, value) in all.iter().filter(|(key, _)| *key != "notes") {
        let line = text
            .lines()
            .position(|line| line.contains(&format!("\"{key}\"")))
            .map_or(1, |at| at + 1);
        if key == "tick_ns" {
            let tick = json!({ "tick_ns": 1.0 / TICKS_PER_NS as f64 });
            compare(
                &json!({ "tick_ns": value }),
                &tick,
                &NESTED,
                "file",
                line,
                &mut report,
            )?;
        } else {
            check_example(key, value, line, &mut report)?;
        }
    }
    Ok(report)
}

/// Checks the example called `key`.
fn check_example(key: &str, value: &Value, line: usize, report: &mut CheckReport) -> Result<(), CheckError> {
    let number: String = key
        .strip_prefix("ex")
        .unwrap_or_default()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let wrong = |what: &dyn std::fmt::Display| CheckError::Json(format!("line {line}: {key}: {what}"));
    let (whole, each) = (inputs(&number, false), inputs(&number, true));
    if whole.is_none() && each.is_none() {
        return Err(CheckError::Json(format!(
            "line {line}: {key:?} is no known key; known: ex1 to ex12, tick_ns, notes"
        )));
    }
    let mut given = Given::default();
    let rows = match (&whole, value) {
        (Some(whole), Value::Object(entries)) => {
            given = Given::of(value).map_err(|e| wrong(&e))?;
            let actual = example(&number, &given, None).map_err(|e| wrong(&e))?;
            compare(value, &actual, whole, key, line, report)?;
            entries.get("rows")
        }
        (Some(_), _) => return Err(wrong(&"an object was expected")),
        (None, _) => Some(value),
    };
    let (Some(each), Some(rows)) = (each, rows) else {
        return Ok(());
    };
    let rows = rows
        .as_array()
        .ok_or_else(|| wrong(&"an array of rows was expected"))?;
    for (at, row) in rows.iter().enumerate() {
        let row_given = Given::of(row).map_err(|e| wrong(&e))?;
        let actual = example(&number, &given, Some(&row_given)).map_err(|e| wrong(&e))?;
        compare(row, &actual, &each, &format!("{key}[{at}]"), line, report)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        check(text).unwrap_err().to_string()
    }

    #[test]
    fn a_key_that_an_example_does_not_use_is_an_error() {
        for (text, said) in [
            (r#"{"ex3_x": {"D": 1}}"#, "ex3_x.D: not used here"),
            (r#"{"ex7": {"tags": 1}}"#, "parameters: gen, lanes, D;"),
            (r#"{"ex7": {"clean": {"D": 1}}}"#, "ex7.clean.D"),
            (r#"{"ex7": {"rows": []}}"#, "ex7.rows"),
            (r#"{"ex1": [{"gen": 3, "tags": 1}]}"#, "ex1[0].tags"),
            (r#"{"ex4": {"rule": ""}}"#, "prose and rows: policy"),
            (r#"{"ex13": {}}"#, "known: ex1 to ex12"),
        ] {
            assert!(error(text).contains(said), "{text}: {}", error(text));
        }
    }

    #[test]
    fn an_example_has_its_shape() {
        assert!(error(r#"{"ex1": {"gen": 3}}"#).contains("ex1: an array of rows"));
        assert!(error(r#"{"ex10": {"rows": 1}}"#).contains("ex10: an array of rows"));
        assert!(error("{\n\"ex2\": 5}").contains("line 2: ex2: an object"));
        assert!(error(r#"{"ex1": [5]}"#).contains("ex1"));
        assert!(error(r#"{"ex1": [{"gen": 9}]}"#).contains("gen = 9: allowed is 1 to 6"));
    }

    #[test]
    fn the_tick_is_checked() {
        let counts = |text| check(text).map(|r| (r.passed, r.failed)).unwrap();
        assert_eq!(counts(r#"{"tick_ns": 0.0009765625, "notes": "x"}"#), (1, 0));
        assert_eq!(counts(r#"{"tick_ns": 0.001}"#), (0, 1));
    }

    /// A value of a parameter beside the default that every example which uses it notices.
    const CHANGED: [(&str, &str); 12] = [
        ("gen", "4"),
        ("lanes", "8"),
        ("D", "1024"),
        ("H", "1024"),
        ("n", "3"),
        ("tlps", "3"),
        ("tags", "1"),
        ("PH", "1"),
        ("drain", "4096"),
        ("ack_timer_symbols", "7"),
        ("replay_symbols", "600"),
        ("payload", "64"),
    ];

    /// Each parameter that [`inputs`] names has an effect, and no other has.
    #[test]
    fn an_example_uses_its_parameters_and_no_others() {
        for number in (1..=12).map(|n: u32| n.to_string()) {
            for is_row in [false, true] {
                let Some(inputs) = inputs(&number, is_row) else {
                    assert_eq!(
                        example(&number, &Given::default(), is_row.then(Given::default).as_ref()).ok(),
                        Some(Value::Null)
                    );
                    continue;
                };
                let result = |keys: &[(&str, &str)]| {
                    let mut object = Map::new();
                    if number == "8" {
                        object.insert("replay_symbols".into(), json!(504));
                    }
                    if number == "12" {
                        object.insert("link".into(), json!("NVLink3 2 links"));
                    }
                    for (key, value) in keys {
                        object.insert((*key).into(), serde_json::from_str(value).unwrap());
                    }
                    let given = Given::of(&Value::Object(object)).unwrap();
                    // The parameters of the whole reach its rows.
                    let rows = || example(&number, &given, Some(&Given::default())).unwrap();
                    if is_row {
                        example(&number, &Given::default(), Some(&given)).unwrap()
                    } else if inputs.other.contains(&"rows") {
                        json!([example(&number, &given, None).unwrap(), rows()])
                    } else {
                        example(&number, &given, None).unwrap()
                    }
                };
                let plain = result(&[]);
                for (key, value) in CHANGED {
                    assert_eq!(
                        result(&[(key, value)]) != plain,
                        inputs.parameters.contains(&key),
                        "example {number}, row {is_row}: {key}"
                    );
                }
            }
        }
    }
}
