//! What no lint looks for: unfinished code, switched-off tests, long files.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::Context;
use crate::process::output;
use crate::steps::Outcome;

/// Longer than this and a file has more than one subject.
const MAX_LINES: usize = 450;

/// What a finished source does not contain, spelled so that this file does not contain it.
const UNFINISHED: [&str; 4] = [
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
    concat!("#[", "ignore"),
];

fn objections(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        found.push(format!("{path}: {lines} lines, expected at most {MAX_LINES}"));
    }
    for (i, line) in text.lines().enumerate() {
        let words = UNFINISHED.iter().filter(|word| line.contains(**word));
        found.extend(words.map(|word| format!("{path}:{}: {word}", i + 1)));
    }
    found
}

/// Looks at every Rust and Python file that git knows or would add.
pub fn check(context: &Context) -> Result<Outcome> {
    let mut git = Command::new("git");
    git.current_dir(&context.root)
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*.py"]);
    let Some(files) = output(&mut git) else {
        return Ok(Outcome::Skipped("not a git checkout".into()));
    };
    let mut found = Vec::new();
    let paths = || files.lines().filter(|path| context.root.join(path).is_file());
    for path in paths() {
        let text = fs::read_to_string(context.root.join(path)).with_context(|| format!("cannot read {path}"))?;
        found.extend(objections(path, &text));
    }
    if !found.is_empty() {
        bail!("{}", found.join("\n       "));
    }
    Ok(Outcome::Passed(format!("{} files", paths().count())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_and_long_files_are_found() {
        assert!(objections("a.rs", "fn main() {}\n").is_empty());
        assert_eq!(
            objections("a.rs", &format!("fn f() {{\n    {}) }}", UNFINISHED[0])).len(),
            1
        );
        assert_eq!(objections("a.rs", &"\n".repeat(MAX_LINES + 1)).len(), 1);
    }
}
