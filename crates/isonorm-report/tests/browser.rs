//! The page in a real browser, without a window: every plot is drawn, nothing is cut off, nothing is wider than the screen, and the
//! browser complains about nothing. Needs Chromium or Chrome; without one a line says what is left out.

mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use isonorm_report::picture::Subject;
use isonorm_report::record::Record;
use isonorm_report::{page, picture};
use serde_json::Value;

/// Rows that are a sweep, and peers of two machines.
const OF_A_PAGE: [&str; 5] = [
    "2026-11-22-epyc-2-threads-torch.json",
    "2026-11-23-h200-torch.json",
    "2026-11-23-h200-sweep.json",
    "2026-11-24-h200.json",
    "2026-11-25-h200-sweep-batchnorm.json",
];

/// Names of browsers that take `--headless --dump-dom`.
const BROWSERS: [&str; 5] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
];
/// A phone's width, and a desk's.
const WIDTHS: [u32; 2] = [360, 1280];
/// A page takes a second or two.
const LONGEST: Duration = Duration::from_secs(120);

/// Measures every plot, looks for letters outside of theirs, and reads every picture's file as XML.
const SCRIPT: &str = r#"
const plots = [...document.querySelectorAll("svg")].map(svg => {
    const box = svg.getBoundingClientRect(), drawn = svg.getBBox(), view = svg.viewBox.baseVal;
    const texts = [...svg.querySelectorAll("text")].map(text => ({ said: text.textContent.trim(), b: text.getBBox() }));
    const outside = texts.filter(({ b }) => {
        return b.x < -1 || b.y < -1 || b.x + b.width > view.width + 1 || b.y + b.height > view.height + 1;
    });
    // Lines of letters are higher than the letters.
    const over = (a, b) => a.x + 1 < b.x + b.width && b.x + 1 < a.x + a.width && a.y + 5 < b.y + b.height && b.y + 5 < a.y + a.height;
    const overlapping = texts.flatMap(({ said, b }, i) => texts.slice(i + 1).filter(other => over(b, other.b)).map(other => [said, other.said]));
    return {
        overlapping, id: svg.id, width: box.width, height: box.height, drawn: drawn.width * drawn.height,
        shapes: svg.querySelectorAll("rect,circle,polygon,polyline").length, texts: texts.length,
        outside: outside.map(text => text.said),
        named: svg.getAttribute("role") === "img" && svg.getAttribute("aria-labelledby").split(" ")
            .every(id => document.getElementById(id)?.textContent.length > 10),
    };
});
const malformed = FILES.filter(text => new DOMParser().parseFromString(text, "image/svg+xml").querySelector("parsererror"));
const headings = [...document.querySelectorAll("h1,h2,h3,h4,h5,h6")].map(heading => Number(heading.tagName[1]));
const channel = color => Number(color.match(/\d+/)[0]);
const style = getComputedStyle(document.body);
const output = document.createElement("output");
output.id = "measured";
output.textContent = JSON.stringify({
    plots, malformed: malformed.length, headings, page: document.documentElement.scrollWidth, window: innerWidth,
    ground: channel(style.backgroundColor), text: channel(style.color),

    unnamed: [...document.querySelectorAll("table")].filter(table => !table.caption?.textContent).length,
});
parent.document.body.append(output);
"#;

/// Past the test harness, which would keep it to itself.
fn say(skipped: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {skipped}");
}

/// Records that fill every section of a page.
fn of_a_page() -> Vec<Record> {
    let paths = OF_A_PAGE
        .iter()
        .map(|name| common::committed().join(name))
        .chain([common::made_up()]);
    paths.map(|path| Record::load(&path).expect("a record")).collect()
}

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let all = BROWSERS
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let mut found = all.filter(|program| program.is_file());
    found.next()
}

/// Opens a page; what the script found, and what the browser said.
fn open(browser: &Path, page: &Path, more: &[&str]) -> (Value, String) {
    let folder = page.parent().expect("a folder");
    let (dom, said) = (folder.join("dom.html"), folder.join("said.txt"));
    let mut child = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ])
        .args(["--dump-dom", "--enable-logging=stderr", "--v=0"])
        .args(more)
        .arg("--window-size=1600,2000")
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .stdout(Stdio::from(fs::File::create(&dom).expect("a file")))
        .stderr(Stdio::from(fs::File::create(&said).expect("a file")))
        .spawn()
        .expect("the browser starts");
    let start = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if start.elapsed() > LONGEST {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{} did not end in {LONGEST:?}", browser.display());
        }
        thread::sleep(Duration::from_millis(50));
    }
    let said = fs::read_to_string(said).expect("what it said");
    let dom = fs::read_to_string(dom).expect("what it drew");
    let measured = dom
        .split_once("<output id=\"measured\">")
        .and_then(|(_, rest)| rest.split_once("</output>"));
    let (json, _) = measured.unwrap_or_else(|| panic!("the page was not measured: {said}"));
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    (serde_json::from_str(&json).expect("JSON"), said)
}

#[test]
fn every_plot_is_drawn_and_the_browser_complains_about_nothing() {
    let Some(browser) = browser() else {
        return say(&format!(
            "the page in a browser: none of {} is installed",
            BROWSERS.join(", ")
        ));
    };
    let records = of_a_page();
    let pictures = picture::all(&records).expect("pictures");
    for subject in [
        Subject::Bandwidth,
        Subject::Peers,
        Subject::Ablations,
        Subject::Sweep,
        Subject::Numerics,
        Subject::Ladder,
    ] {
        assert!(pictures.iter().any(|picture| picture.subject == subject), "{subject:?}");
    }
    let files: Vec<_> = pictures.iter().map(picture::Picture::standalone).collect();
    let files = serde_json::to_string(&files).expect("JSON").replace("</", "<\\/");
    let html = page::html(&records).expect("a page");
    // Outside of the test a page has no script.
    assert!(!html.contains("<script"));
    let script = format!("<script>const FILES = {files};{SCRIPT}</script></body>");
    let folder = tempfile::tempdir().expect("a folder");
    let html = html
        .replace("</body>", &script)
        .replace('&', "&amp;")
        .replace('"', "&quot;");
    let path = folder.path().join("page.html");

    for width in WIDTHS {
        fs::write(&path, framed(&html, width)).expect("a file");
        let (measured, said) = open(&browser, &path, &[]);
        check(&measured, pictures.len(), width);
        assert!(!said.contains("CONSOLE"), "{said}");
        assert!(
            measured["ground"].as_u64() > measured["text"].as_u64(),
            "dark letters on a light ground"
        );
    }
    let (dark, _) = open(&browser, &path, &["--blink-settings=preferredColorScheme=0"]);
    check(&dark, pictures.len(), WIDTHS[1]);
    assert!(
        dark["ground"].as_u64() < dark["text"].as_u64(),
        "light letters on a dark ground"
    );
}

/// A page in a frame of this width: a browser's window cannot be as narrow as a phone. Without the encoding the browser would guess it from what it
/// happens to read first.
fn framed(html: &str, width: u32) -> String {
    let style = format!("width:{width}px;height:2000px;border:0");
    format!(
        "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><body><iframe title=\"page\" style=\"{style}\" srcdoc=\"{html}\"></iframe></body></html>"
    )
}

fn check(measured: &Value, pictures: usize, width: u32) {
    let plots = measured["plots"].as_array().expect("plots");
    assert_eq!(plots.len(), pictures);
    for plot in plots {
        let number = |key: &str| plot[key].as_f64().unwrap_or_default();
        let drawn = ["width", "height", "drawn"].iter().all(|key| number(key) > 0.0);
        assert!(
            drawn && number("shapes") >= 5.0 && number("texts") >= 5.0,
            "not drawn: {plot}"
        );
        assert_eq!(
            plot["outside"],
            Value::Array(Vec::new()),
            "letters outside of {}",
            plot["id"]
        );
        assert_eq!(
            plot["overlapping"],
            Value::Array(Vec::new()),
            "letters over letters in {}",
            plot["id"]
        );
        assert_eq!(plot["named"], true, "{}", plot["id"]);
    }
    assert_eq!((&measured["malformed"], &measured["unnamed"]), (&0.into(), &0.into()));
    let (page, window) = (measured["page"].as_u64(), measured["window"].as_u64());
    assert!(
        window == Some(width.into()) && page <= window,
        "{page:?} pixels in {window:?}, expected {width}"
    );
    let headings: Vec<u64> = measured["headings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .collect();
    assert_eq!(headings.iter().filter(|level| **level == 1).count(), 1);
    assert!(
        headings.windows(2).all(|pair| pair[1] <= pair[0] + 1),
        "a level is left out: {headings:?}"
    );
}
