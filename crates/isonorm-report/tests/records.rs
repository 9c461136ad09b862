//! Every committed record is read; whatever a file holds, reading it ends, and what was read can be drawn and compared.

mod common;

use std::fs;

use isonorm_report::compare::Comparison;
use isonorm_report::page;
use isonorm_report::record::{LoadError, Record, SCHEMA};
use proptest::prelude::*;

#[test]
fn every_committed_record_is_read_and_written_as_it_was() {
    let mut read = 0;
    for entry in fs::read_dir(common::committed()).expect("the records") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let record = Record::load(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!((1..=SCHEMA).contains(&record.schema));
        assert!(
            !record.rows.is_empty() || !record.ladder.is_empty(),
            "{}",
            path.display()
        );
        // Nothing that a record says is lost when it is written again.
        let said: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("the file")).expect("JSON");
        let mut written = serde_json::to_value(&record).expect("JSON");
        if said["gpu"]["driver"].is_null() && said["gpu"].get("driver").is_some() {
            written["gpu"]["driver"] = serde_json::Value::Null;
        }
        assert_eq!(written, said, "{}", path.display());
        // A record is no slower than itself.
        let comparison = Comparison::of(&record, &record);
        assert_eq!((comparison.regressions, comparison.missing.len()), (0, 0));
        read += 1;
    }
    assert!(read >= 36, "{read} records");
}

#[test]
fn records_of_peers_tell_the_speed_up_that_the_page_of_the_project_does() {
    let record = Record::load(&common::committed().join("2026-11-25-h200-torch.json")).expect("a record");
    let speedups = record.rows.iter().filter_map(|row| row.speedup());
    let mean = isonorm_report::geometric_mean(speedups).expect("peers");
    assert_eq!(format!("{mean:.2}"), "1.35");
}

/// A small record with everything in it.
fn small() -> Vec<u8> {
    let mut record = Record::load(&common::made_up()).expect("the made-up record");
    let of = |name: &str, rows: std::ops::Range<usize>| {
        let record = Record::load(&common::committed().join(name)).expect("a record");
        record.rows[rows].to_vec()
    };
    record.rows.extend(of("2026-11-23-h200-torch.json", 0..4));
    record.rows.extend(of("2026-11-23-h200-sweep.json", 0..28));
    record.rows.extend(of("2026-11-24-h200-sweep-batchnorm.json", 0..60));
    serde_json::to_vec_pretty(&record).expect("JSON")
}

/// Reads; what was read is drawn and compared.
fn consume(text: &[u8]) {
    match Record::parse(text) {
        Ok(record) => {
            let comparison = Comparison::of(&record, &record);
            assert_eq!(comparison.regressions, 0);
            page::html(&[record]).expect("a page of what was read");
        }
        Err(error) => {
            assert!(!matches!(error, LoadError::Io(_)));
            let told = error.to_string();
            assert!(!told.contains('\n') && told.len() < 1000, "{told}");
        }
    }
}

/// Values that nobody would write into a record.
const STRANGE: [&str; 16] = [
    "0",
    "-1",
    "1e308",
    "-1e308",
    "1e-308",
    "1e999",
    "18446744073709551615",
    "18446744073709551616",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"NaN\"",
    "[[[[[]]]]]",
    "\"<script>\\u0000\\n\"",
];

/// The `index`-th value of the text replaced.
fn with_value(text: &str, index: usize, value: &str) -> String {
    let starts: Vec<_> = text.match_indices("\": ").map(|(at, _)| at + 3).collect();
    let start = starts[index % starts.len()];
    let length = text[start..].find('\n').unwrap_or(text.len() - start);
    let comma = if text[start..start + length].ends_with(',') {
        ","
    } else {
        ""
    };
    format!("{}{value}{comma}{}", &text[..start], &text[start + length..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_record_that_was_cut_off_is_an_error(share in 0.0..1.0f64) {
        let text = small();
        let cut = &text[..(share * (text.len() - 2) as f64) as usize];
        prop_assert!(matches!(Record::parse(cut), Err(LoadError::Form(_))));
    }

    #[test]
    fn strange_values_are_told_or_drawn(index in any::<prop::sample::Index>(), value in 0..STRANGE.len()) {
        let text = String::from_utf8(small()).expect("JSON");
        consume(with_value(&text, index.index(text.len()), STRANGE[value]).as_bytes());
    }

    #[test]
    fn damaged_bytes_are_told_or_drawn(at in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 1..9)) {
        let mut text = small();
        let at = at.index(text.len());
        let end = text.len().min(at + bytes.len());
        text[at..end].copy_from_slice(&bytes[..end - at]);
        consume(&text);
    }

    #[test]
    fn any_bytes_are_told(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        consume(&bytes);
    }
}

#[test]
fn nesting_without_end_is_told() {
    consume("[".repeat(1 << 20).as_bytes());
    consume(format!("{{\"schema\": 2, \"rows\": {}", "[".repeat(1 << 20)).as_bytes());
}

#[test]
fn names_are_text_and_not_markup() {
    let text = String::from_utf8(small()).expect("JSON");
    let text = text
        .replace("NVIDIA H200", "<script>alert(1)</script>")
        .replace("bn-naive", "\\\"><img src=x>&\\u0007");
    let page = page::html(&[Record::parse(text.as_bytes()).expect("a record")]).expect("a page");
    for markup in ["<script", "<img", "\u{7}"] {
        let near = page.find(markup).map(|at| &page[at.saturating_sub(100)..at + 20]);
        assert_eq!(near, None, "{markup:?}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)"));
}

#[test]
fn a_page_of_nothing_says_so() {
    let page = page::html(&[]).expect("a page");
    assert!(page.contains("There are no records."));
    assert!(!page.contains("<svg"));
}
