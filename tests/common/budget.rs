//! Comparison with `tests/budgets.toml`.

fn budget(name: &str) -> usize {
    let budgets = include_str!("../budgets.toml").lines();
    let mut values = budgets.filter_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    values.next().unwrap().parse().unwrap()
}

/// The least of six figures, if the first ones are above the budget. Changes of this machine, such
/// as a mount, a stall of its memory or an answer in two pieces, make the agent do more; what the
/// agent itself costs is in each of the six. `None` if nothing can be counted.
pub fn least(name: &str, mut count: impl FnMut() -> Option<usize>) -> Option<usize> {
    let mut least = usize::MAX;
    for _ in 0..6 {
        let figure = count()?;
        least = least.min(figure);
        if least <= budget(name) {
            break;
        }
        println!("{name}: {figure}, counted again");
    }
    Some(least)
}

/// Fails above the budget, and below half of it: such a budget would not notice growth.
pub fn assert_within(name: &str, figure: usize) {
    let budget = budget(name);
    println!("{name}: {figure}, {budget} allowed");
    assert!(figure <= budget, "{name}: {figure}, {budget} allowed");
    assert!(figure * 2 > budget, "{name}: {figure}: lower the budget of {budget}");
}
