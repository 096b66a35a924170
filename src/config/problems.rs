//! `--node-problem-detection` and `--node-condition`: the conditions about the board's health.

use std::path::PathBuf;

use crate::kube::names;

/// Limit of `--node-condition` flags.
const MAX_CONDITIONS: usize = 8;

/// A condition type of this program. True is a problem, as with node-problem-detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the names say it; core::problems has the rules"
)]
pub enum Kind {
    ReadonlyFilesystem,
    FilesystemCorruptionProblem,
    StorageWornOut,
    UnderVoltage,
    ThermalThrottling,
    KernelDeadlock,
    NTPProblem,
    FrequentReboot,
}

/// Number of [`Kind`]s.
pub const KINDS: usize = 8;

impl Kind {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; KINDS] = [
        Self::ReadonlyFilesystem,
        Self::FilesystemCorruptionProblem,
        Self::StorageWornOut,
        Self::UnderVoltage,
        Self::ThermalThrottling,
        Self::KernelDeadlock,
        Self::NTPProblem,
        Self::FrequentReboot,
    ];

    /// The condition type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadonlyFilesystem => "ReadonlyFilesystem",
            Self::FilesystemCorruptionProblem => "FilesystemCorruptionProblem",
            Self::StorageWornOut => "StorageWornOut",
            Self::UnderVoltage => "UnderVoltage",
            Self::ThermalThrottling => "ThermalThrottling",
            Self::KernelDeadlock => "KernelDeadlock",
            Self::NTPProblem => "NTPProblem",
            Self::FrequentReboot => "FrequentReboot",
        }
    }
}

/// Condition types that a kubelet or the cluster writes.
const RESERVED: [&str; 5] = [
    "Ready",
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "NetworkUnavailable",
];

/// When a detected type is listed in `status.conditions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// From its first True until it has been False for 24 hours.
    Problems,
    /// Whenever the board has a source for it.
    All,
}

/// The checked values of both flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Problems {
    /// When a type of `kinds` is listed.
    pub listing: Listing,
    /// The types that are detected; none of them with `--node-problem-detection=none`.
    pub kinds: Vec<Kind>,
    /// `--node-condition`.
    pub files: Vec<FileCondition>,
}

/// One `--node-condition TYPE=PATH`: True while the file exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCondition {
    /// The condition type.
    pub name: String,
    /// An absolute path.
    pub path: PathBuf,
}

impl Problems {
    /// Parses the values of both flags; an error names the flag.
    pub fn parse(detection: &str, conditions: &[String]) -> Result<Self, String> {
        let (listing, kinds) =
            parse_detection(detection).map_err(|e| format!("--node-problem-detection: {e}"))?;
        let mut files: Vec<FileCondition> = Vec::new();
        for item in conditions {
            let file =
                parse_condition(item).map_err(|e| format!("--node-condition {item:?}: {e}"))?;
            if files.iter().any(|other| other.name == file.name) {
                return Err(format!("--node-condition: {} is given twice", file.name));
            }
            files.push(file);
        }
        match files.len() {
            0..=MAX_CONDITIONS => Ok(Self {
                listing,
                kinds,
                files,
            }),
            _ => Err(format!("--node-condition: at most {MAX_CONDITIONS}")),
        }
    }
}

/// `none`, `problems`, `all`, and types that restrict (`TYPE`) or exclude (`-TYPE`).
fn parse_detection(text: &str) -> Result<(Listing, Vec<Kind>), String> {
    let (mut listing, mut none) = (Listing::Problems, false);
    let (mut only, mut without): (Vec<Kind>, Vec<Kind>) = (Vec::new(), Vec::new());
    let items = text.split(',').map(str::trim);
    for item in items.clone() {
        match item {
            "none" => none = true,
            "problems" => listing = Listing::Problems,
            "all" => listing = Listing::All,
            item => {
                let (list, name) = match item.strip_prefix('-') {
                    Some(name) => (&mut without, name),
                    None => (&mut only, item),
                };
                let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
                list.push(kind.ok_or_else(|| {
                    let names = Kind::ALL.map(Kind::name).join(", ");
                    format!(
                        "{item:?}: write none, problems, all, or types with or without -: {names}"
                    )
                })?);
            }
        }
    }
    if none && items.count() > 1 {
        return Err("none stands alone".to_owned());
    }
    let is_on =
        |kind: &Kind| !none && (only.is_empty() || only.contains(kind)) && !without.contains(kind);
    Ok((listing, Kind::ALL.into_iter().filter(is_on).collect()))
}

fn parse_condition(item: &str) -> Result<FileCondition, String> {
    let (name, path) = item.split_once('=').ok_or("write TYPE=PATH")?;
    let word = name.rsplit('/').next().unwrap_or_default();
    let is_camel_case = word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_camel_case || !names::is_qualified_name(name) {
        return Err("the type is CamelCase of at most 63 letters and digits, \
                    or example.com/CamelCase"
            .to_owned());
    }
    if RESERVED.contains(&name) || Kind::ALL.iter().any(|kind| kind.name() == name) {
        return Err(format!(
            "{name} is written by nodelet itself or by the cluster"
        ));
    }
    if !path.starts_with('/') {
        return Err("the path is absolute".to_owned());
    }
    Ok(FileCondition {
        name: name.to_owned(),
        path: path.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<(Listing, Vec<&'static str>), String> {
        let parsed = parse_detection(text)?;
        Ok((parsed.0, parsed.1.into_iter().map(Kind::name).collect()))
    }

    #[test]
    fn types_restrict_and_exclude() {
        let all = Kind::ALL.map(Kind::name).to_vec();
        assert_eq!(names("problems"), Ok((Listing::Problems, all.clone())));
        assert_eq!(names("all"), Ok((Listing::All, all.clone())));
        assert_eq!(names("none"), Ok((Listing::Problems, vec![])));
        assert_eq!(
            names("all,UnderVoltage, NTPProblem"),
            Ok((Listing::All, vec!["UnderVoltage", "NTPProblem"]))
        );
        assert_eq!(
            names("UnderVoltage"),
            Ok((Listing::Problems, vec!["UnderVoltage"]))
        );
        let others: Vec<_> = all
            .iter()
            .copied()
            .filter(|k| *k != "UnderVoltage")
            .collect();
        for text in ["-UnderVoltage", "problems,-UnderVoltage"] {
            assert_eq!(
                names(text),
                Ok((Listing::Problems, others.clone())),
                "{text}"
            );
        }
        assert_eq!(
            names("UnderVoltage,-UnderVoltage"),
            Ok((Listing::Problems, vec![]))
        );
    }

    #[test]
    fn an_unknown_word_is_refused() {
        for text in [
            "",
            "some",
            "none,all",
            "-",
            "undervoltage",
            "Ready",
            "all,,",
        ] {
            assert!(names(text).is_err(), "{text:?}");
        }
        let error = names("FanStopped").unwrap_err();
        assert!(error.contains("FrequentReboot"), "{error}");
    }

    #[test]
    fn a_condition_is_a_type_and_a_path() {
        let parse = |items: &[&str]| {
            let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
            Problems::parse("none", &items).map(|problems| problems.files)
        };
        let file = |name: &str, path: &str| FileCondition {
            name: name.to_owned(),
            path: path.into(),
        };
        assert_eq!(
            parse(&["OnBattery=/run/ups/on", "RebootRequired=/run/a=b"]),
            Ok(vec![
                file("OnBattery", "/run/ups/on"),
                file("RebootRequired", "/run/a=b")
            ])
        );
        for (items, part) in [
            (vec!["OnBattery"], "TYPE=PATH"),
            (vec!["onBattery=/x"], "CamelCase"),
            (vec!["On-Battery=/x"], "CamelCase"),
            (vec!["=/x"], "CamelCase"),
            (vec!["Ready=/x"], "written by"),
            (vec!["NetworkUnavailable=/x"], "written by"),
            (vec!["UnderVoltage=/x"], "written by"),
            (vec!["OnBattery="], "absolute"),
            (vec!["OnBattery=x"], "absolute"),
            (vec!["A=/x", "A=/y"], "twice"),
        ] {
            let error = parse(&items).unwrap_err();
            assert!(error.contains(part), "{items:?}: {error}");
        }
        let long = format!("{}=/x", "A".repeat(64));
        assert!(parse(&[&long]).is_err() && parse(&[&long[1..]]).is_ok());
        assert!(parse(&["example.com/OnBattery=/x"]).is_ok());
        assert!(parse(&["a/b/OnBattery=/x"]).is_err());
        let many: Vec<String> = (0..9).map(|n| format!("A{n}=/x")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(parse(&many[..8]).is_ok());
        assert_eq!(parse(&many).unwrap_err(), "--node-condition: at most 8");
    }
}
