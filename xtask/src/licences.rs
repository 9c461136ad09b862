//! Licences: every dependency can be used under one on the list, and the project's own are in their places.

use anyhow::{Context as _, Result, bail};
use cargo_metadata::{CargoOpt, MetadataCommand, Package};
use spdx::{Expression, Licensee, ParseMode};

use crate::Context;
use crate::steps::Outcome;

/// Licences that allow what `MIT OR Apache-2.0` allows, given a notice.
const ALLOWED: [&str; 12] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "BSL-1.0",
    "CC0-1.0",
    "Unicode-3.0",
    "Unlicense",
];

/// The project's own licence, and the files that hold its texts.
const OWN: &str = "MIT OR Apache-2.0";
const FILES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Why a package may not be used, if so.
fn objection(licence: Option<&str>, allowed: &[Licensee]) -> Option<String> {
    let Some(text) = licence else {
        return Some("names no licence".into());
    };
    // Old packages write `MIT/Apache-2.0` for `MIT OR Apache-2.0`.
    match Expression::parse_mode(text, ParseMode::LAX) {
        Err(error) => Some(format!(
            "the licence {text:?} is not an SPDX expression ({})",
            error.reason
        )),
        Ok(expression) if expression.evaluate(|required| allowed.iter().any(|l| l.satisfies(required))) => None,
        Ok(_) => Some(format!("the licence {text:?} is not on the list")),
    }
}

fn own_objection(package: &Package) -> Option<String> {
    (package.license.as_deref() != Some(OWN)).then(|| {
        format!(
            "license is {:?}, expected {OWN:?}",
            package.license.as_deref().unwrap_or("missing")
        )
    })
}

/// Looks at everything that a build on any platform, with any feature, can contain.
pub fn check(context: &Context) -> Result<Outcome> {
    let metadata = MetadataCommand::new()
        .current_dir(&context.root)
        .features(CargoOpt::AllFeatures)
        .other_options(["--locked".to_string()])
        .exec()
        .context("cargo metadata failed")?;
    let allowed = ALLOWED
        .map(Licensee::parse)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    let mut objections = Vec::new();
    for package in &metadata.packages {
        let own = metadata.workspace_members.contains(&package.id);
        let objection = if own {
            own_objection(package)
        } else {
            objection(package.license.as_deref(), &allowed)
        };
        objections.extend(objection.map(|o| format!("{} {}: {o}", package.name, package.version)));
    }
    objections.extend(
        FILES
            .iter()
            .filter(|f| !context.root.join(f).is_file())
            .map(|f| format!("{f} is missing")),
    );
    if !objections.is_empty() {
        bail!("{}", objections.join("\n       "));
    }
    let dependencies = metadata.packages.len() - metadata.workspace_members.len();
    println!(
        "{dependencies} dependencies can be used under one of {}",
        ALLOWED.join(", ")
    );
    Ok(Outcome::Passed(format!("{dependencies} dependencies")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objection_to(licence: &str) -> Option<String> {
        let allowed = ALLOWED.map(|l| Licensee::parse(l).unwrap());
        objection(Some(licence), &allowed)
    }

    #[test]
    fn alternatives_need_one_that_is_allowed() {
        assert_eq!(objection_to("MIT OR GPL-3.0-only"), None);
        assert_eq!(objection_to("MIT/Apache-2.0"), None);
        assert_eq!(objection_to("(MIT OR Apache-2.0) AND Unicode-3.0"), None);
        assert_eq!(objection_to("Apache-2.0 WITH LLVM-exception"), None);
    }

    #[test]
    fn conjunctions_need_all_to_be_allowed() {
        assert!(objection_to("MIT AND GPL-3.0-only").is_some());
        assert!(objection_to("MPL-2.0").is_some());
        assert!(objection_to("do what you like").is_some());
        assert!(objection(None, &[]).is_some());
    }
}
