//! Comparison with `tests/budgets.toml`.

fn budget(name: &str) -> usize {
    let budgets = include_str!("../budgets.toml").lines();
    let mut values = budgets.filter_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    values.next().unwrap().parse().unwrap()
}

/// Fails above the budget, and below half of it: such a budget would not notice growth.
pub fn assert_within(name: &str, figure: usize) {
    let budget = budget(name);
    println!("{name}: {figure}, {budget} allowed");
    assert!(figure <= budget, "{name}: {figure}, {budget} allowed");
    assert!(
        figure * 2 > budget,
        "{name}: {figure}: lower the budget of {budget}"
    );
}
