//! Comparison with `tests/budgets.toml`.

use std::fs;
use std::sync::Mutex;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/budgets.toml");

/// The recorded value, and the greatest that is allowed.
fn budget(name: &str) -> (usize, usize) {
    let budgets = include_str!("../budgets.toml").lines();
    let mut values = budgets.filter_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    let recorded: usize = values.next().unwrap().parse().unwrap();
    (recorded, recorded + recorded * 3 / 100)
}

fn records() -> bool {
    std::env::var_os("RECORD_BUDGETS").is_some()
}

/// The least of six figures, if the first ones are above the budget. Changes of this machine, such
/// as a mount, a stall of its memory or an answer in two pieces, make the agent do more; what the
/// agent itself costs is in each of the six. `None` if nothing can be counted.
pub fn least(name: &str, mut count: impl FnMut() -> Option<usize>) -> Option<usize> {
    let mut least = usize::MAX;
    for _ in 0..6 {
        let figure = count()?;
        least = least.min(figure);
        if least <= budget(name).1 && !records() {
            break;
        }
        println!("{name}: {figure}, counted again");
    }
    Some(least)
}

/// Fails more than 3 % above the recorded value, and below half of it: such a value would not
/// notice growth. With `RECORD_BUDGETS` in the environment it writes the figure to the file.
pub fn assert_within(name: &str, figure: usize) {
    let (recorded, allowed) = budget(name);
    println!("{name}: {figure}, {recorded} recorded, {allowed} allowed");
    if records() {
        return record(name, figure);
    }
    assert!(figure <= allowed, "{name}: {figure}, {recorded} recorded, {allowed} allowed");
    assert!(figure * 2 > recorded, "{name}: {figure}: record it; {recorded} is recorded");
}

fn record(name: &str, figure: usize) {
    static WRITER: Mutex<()> = Mutex::new(());
    let _only = WRITER.lock().unwrap();
    let line = |line: &str| match line.strip_prefix(name) {
        Some(value) if value.starts_with(" = ") => format!("{name} = {figure}\n"),
        _ => format!("{line}\n"),
    };
    let budgets: String = fs::read_to_string(FILE).unwrap().lines().map(line).collect();
    fs::write(FILE, budgets).unwrap();
}
