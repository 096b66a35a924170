//! `--node-problem-detection` and `--node-condition`: the conditions about the board's health.

use std::path::PathBuf;

use super::KINDS;
use crate::kube::names;

/// Limit of `--node-condition` flags.
const MAX_CONDITIONS: usize = 8;

/// Condition types that a kubelet or the cluster writes.
const RESERVED: [&str; 5] =
    ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];

/// The checked values of both flags; by default no type is detected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthConfig {
    /// True (`all`): a type is listed while the board has a source for it. False: it is listed from
    /// its first True until it has been False for 24 hours.
    pub lists_all: bool,
    /// The names of the types that are detected.
    names: Vec<&'static str>,
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

impl HealthConfig {
    /// Parses the values of both flags; an error names the flag.
    pub fn parse(detection: &str, conditions: &[String]) -> Result<Self, String> {
        let (lists_all, names) =
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
            0..=MAX_CONDITIONS => Ok(Self { lists_all, names, files }),
            _ => Err(format!("--node-condition: at most {MAX_CONDITIONS}")),
        }
    }

    /// Whether the condition type `name` is detected.
    pub fn detects(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// Whether any type is detected.
    pub fn detects_any(&self) -> bool {
        !self.names.is_empty()
    }
}

/// `none`, `problems`, `all`, and types that restrict (`TYPE`) or exclude (`-TYPE`). Returns
/// whether all are listed, and the names of the types that are detected.
fn parse_detection(text: &str) -> Result<(bool, Vec<&'static str>), String> {
    let all = || KINDS.iter().map(|kind| kind.name);
    let (mut lists_all, mut none) = (false, false);
    let (mut only, mut without) = (Vec::new(), Vec::new());
    let items = text.split(',').map(str::trim);
    for item in items.clone() {
        match item {
            "none" => none = true,
            "problems" => lists_all = false,
            "all" => lists_all = true,
            item => {
                let (list, name) = match item.strip_prefix('-') {
                    Some(name) => (&mut without, name),
                    None => (&mut only, item),
                };
                list.push(all().find(|kind| *kind == name).ok_or_else(|| {
                    let names: Vec<&str> = all().collect();
                    format!(
                        "{item:?}: write none, problems, all, or types with or without -: {}",
                        names.join(", ")
                    )
                })?);
            }
        }
    }
    if none && items.count() > 1 {
        return Err("none stands alone".to_owned());
    }
    let is_on =
        |name: &&str| !none && (only.is_empty() || only.contains(name)) && !without.contains(name);
    Ok((lists_all, all().filter(is_on).collect()))
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
    if RESERVED.contains(&name) || KINDS.iter().any(|kind| kind.name == name) {
        return Err(format!("{name} is written by nodelet itself or by the cluster"));
    }
    if !path.starts_with('/') {
        return Err("the path is absolute".to_owned());
    }
    Ok(FileCondition { name: name.to_owned(), path: path.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_restrict_and_exclude() {
        let all: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(parse_detection("problems"), Ok((false, all.clone())));
        assert_eq!(parse_detection("all"), Ok((true, all.clone())));
        assert_eq!(parse_detection("none"), Ok((false, vec![])));
        assert_eq!(
            parse_detection("all,UnderVoltage, NTPProblem"),
            Ok((true, vec!["UnderVoltage", "NTPProblem"]))
        );
        assert_eq!(parse_detection("UnderVoltage"), Ok((false, vec!["UnderVoltage"])));
        let others: Vec<_> = all.iter().copied().filter(|k| *k != "UnderVoltage").collect();
        for text in ["-UnderVoltage", "problems,-UnderVoltage"] {
            assert_eq!(parse_detection(text), Ok((false, others.clone())), "{text}");
        }
        assert_eq!(parse_detection("UnderVoltage,-UnderVoltage"), Ok((false, vec![])));
    }

    #[test]
    fn an_unknown_word_is_refused() {
        for text in ["", "some", "none,all", "-", "undervoltage", "Ready", "all,,"] {
            assert!(parse_detection(text).is_err(), "{text:?}");
        }
        let error = parse_detection("FanStopped").unwrap_err();
        assert!(error.contains("FrequentReboot"), "{error}");
    }

    #[test]
    fn a_condition_is_a_type_and_a_path() {
        let parse = |items: &[&str]| {
            let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
            HealthConfig::parse("none", &items).map(|problems| problems.files)
        };
        let file =
            |name: &str, path: &str| FileCondition { name: name.to_owned(), path: path.into() };
        assert_eq!(
            parse(&["OnBattery=/run/ups/on", "RebootRequired=/run/a=b"]),
            Ok(vec![file("OnBattery", "/run/ups/on"), file("RebootRequired", "/run/a=b")])
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
