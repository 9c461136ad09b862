//! Names on the command line, in which `*` stands for one component: `layers.*.norm`.

use std::str::FromStr;

/// A module's name; `*` matches one or more characters other than a dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(String);

impl Pattern {
    /// What the stars stand for in `name`, or `None` when it does not match.
    pub fn captures<'a>(&self, name: &'a str) -> Option<Vec<&'a str>> {
        captures(&self.0, name)
    }

    /// Whether `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        self.captures(name).is_some()
    }

    /// This pattern with its stars replaced.
    fn expand(&self, stars: &[&str]) -> String {
        let mut pieces = self.0.split('*');
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.zip(stars).fold(first, |name, (piece, star)| name + star + piece)
    }

    fn stars(&self) -> usize {
        self.0.matches('*').count()
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        if text.is_empty() || text.split('.').any(str::is_empty) || text.contains("**") {
            return Err(format!(
                "{text:?} is not a module's name, such as layer1.0.conv1 or layers.*.norm"
            ));
        }
        Ok(Pattern(text.to_owned()))
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Component by component, so that a star never crosses a dot.
fn captures<'a>(pattern: &str, name: &'a str) -> Option<Vec<&'a str>> {
    let (mut parts, mut names) = (pattern.split('.'), name.split('.'));
    let mut stars = Vec::new();
    loop {
        match (parts.next(), names.next()) {
            (None, None) => return Some(stars),
            (Some(part), Some(name)) => component(part, name, &mut stars)?,
            _ => return None,
        }
    }
}

/// Each star takes as little as it can; what follows the last one has to be the end.
fn component<'a>(pattern: &str, mut name: &'a str, stars: &mut Vec<&'a str>) -> Option<()> {
    let mut pieces = pattern.split('*').peekable();
    name = name.strip_prefix(pieces.next()?)?;
    while let Some(piece) = pieces.next() {
        let longest = name.len().checked_sub(piece.len())?;
        let end = if pieces.peek().is_none() {
            name.ends_with(piece).then_some(longest)?
        } else {
            let from = name.chars().next()?.len_utf8();
            from + name.get(from..)?.find(piece)?
        };
        if end == 0 {
            return None;
        }
        stars.push(&name[..end]);
        name = &name[end + piece.len()..];
    }
    name.is_empty().then_some(())
}

/// `FIRST=SECOND`: two modules in the order of the data flow, each star of the second repeating the first's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// The module that the data passes first.
    pub first: Pattern,
    second: Pattern,
}

impl Mapping {
    /// Whether one of the two may be this module.
    pub fn names(&self, module: &str) -> bool {
        self.first.matches(module) || self.second.matches(module)
    }

    /// The second module's name, when the first one's matches.
    pub fn second_of(&self, first: &str) -> Option<String> {
        Some(self.second.expand(&self.first.captures(first)?))
    }
}

impl FromStr for Mapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Mapping, String> {
        let (first, second) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is not FIRST=SECOND, such as conv1=bn1"))?;
        let mapping = Mapping {
            first: first.parse()?,
            second: second.parse()?,
        };
        if mapping.first.stars() != mapping.second.stars() {
            return Err(format!("{text:?} has not as many stars on the left as on the right"));
        }
        Ok(mapping)
    }
}

impl std::fmt::Display for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.first, self.second)
    }
}

/// `NAME=G`: the number of groups of a transposed convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    /// Whose groups.
    pub name: Pattern,
    /// How many; at least one.
    pub groups: usize,
}

impl FromStr for Groups {
    type Err = String;

    fn from_str(text: &str) -> Result<Groups, String> {
        let (name, groups) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is not NAME=G, such as up1=4"))?;
        match groups.parse() {
            Ok(groups) if groups > 0 => Ok(Groups {
                name: name.parse()?,
                groups,
            }),
            _ => Err(format!("{groups:?} is not a number of groups")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stars(pattern: &str, name: &str) -> Option<Vec<String>> {
        let pattern: Pattern = pattern.parse().unwrap();
        Some(pattern.captures(name)?.into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn a_star_is_one_component_or_part_of_one() {
        assert_eq!(stars("a.*.c", "a.b.c"), Some(vec!["b".into()]));
        assert_eq!(stars("a.*.c", "a.b.b.c"), None);
        assert_eq!(
            stars("layer*.*.bn1", "layer2.10.bn1"),
            Some(vec!["2".into(), "10".into()])
        );
        assert_eq!(stars("x*y*z", "xaybyz"), Some(vec!["a".into(), "by".into()]));
        assert_eq!(stars("conv*", "conv"), None);
        assert_eq!(stars("conv", "conv1"), None);
        assert_eq!(stars("*a", "éa"), Some(vec!["é".into()]));
        assert_eq!(stars("*é*", "aéb"), Some(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn a_mapping_repeats_the_stars() {
        let mapping: Mapping = "h.*.ln_*=h.*.mlp.*".parse().unwrap();
        assert_eq!(mapping.second_of("h.11.ln_2").as_deref(), Some("h.11.mlp.2"));
        assert_eq!(mapping.second_of("h.11.ln"), None);
        for wrong in ["conv1", "=bn", "conv=", "a.*=b", "a..b=c", "a=**"] {
            assert!(wrong.parse::<Mapping>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn groups_are_at_least_one() {
        assert_eq!("up.*=4".parse::<Groups>().unwrap().groups, 4);
        for wrong in ["up", "up=0", "up=x", "=2"] {
            assert!(wrong.parse::<Groups>().is_err(), "{wrong}");
        }
    }
}
