//! The grid of "beyond the paper": which cases are compared, over tasks, budgets, networks and features.

use crate::{Case, EPSILONS, Ingredient, Method, Setting, Task, Topology};

const TOPOLOGIES: [Topology; 3] = [Topology::Degree(3), Topology::Degree(8), Topology::Ring];
const CONDITIONS: [f64; 2] = [1.0, 100.0];
/// The budget at which ingredients are taken out one by one.
pub(crate) const INGREDIENT_EPSILON: f64 = 1.0;

/// The networks and data of the grid; `full` adds those with 500 clients.
pub(crate) fn settings(full: bool) -> Vec<Setting> {
    let sizes: &[usize] = if full { &[50, 500] } else { &[50] };
    let mut settings = Vec::new();
    for &clients in sizes {
        for condition in CONDITIONS {
            settings.extend(TOPOLOGIES.map(|topology| Setting { clients, topology, condition }));
        }
    }
    settings
}

/// The cells of the grid, each with free rounds in it.
pub(crate) fn cells(full: bool) -> Vec<Case> {
    let mut cells = Vec::new();
    for setting in settings(full) {
        for task in Task::ALL {
            cells.extend(EPSILONS.map(|epsilon| Case { setting, task, method: Method::FreeRounds, epsilon }));
        }
    }
    cells
}

/// Where ingredients are taken out: the paper's network, with equal and with different feature variances.
pub(crate) fn ingredient_places() -> Vec<Case> {
    let (method, epsilon) = (Method::FreeRounds, INGREDIENT_EPSILON);
    let mut places = Vec::new();
    for condition in CONDITIONS {
        let setting = Setting { condition, ..Setting::PAPER };
        places.extend(Task::ALL.map(|task| Case { setting, task, method, epsilon }));
    }
    places
}

/// Whether an ingredient applies to a problem: without a regulariser there is no prox.
fn is_used(ingredient: Ingredient, task: Task) -> bool {
    ingredient != Ingredient::Prox || task != Task::Lad
}

/// Where zCDP-NFL is also shown on equal terms: on the paper's network.
fn has_equal_terms(cell: &Case) -> bool {
    Setting { condition: 1.0, ..cell.setting } == Setting::PAPER
}

/// All runs of this section.
pub fn cases(full: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for cell in cells(full) {
        cases.extend([cell, Case { method: Method::Zcdp, ..cell }]);
        if has_equal_terms(&cell) {
            cases.push(Case { method: Method::ZcdpEqual, ..cell });
        }
    }
    for place in ingredient_places() {
        let used = Ingredient::ALL.into_iter().filter(|ingredient| is_used(*ingredient, place.task));
        cases.extend(used.map(|ingredient| Case { method: Method::Without(ingredient), ..place }));
    }
    cases
}
