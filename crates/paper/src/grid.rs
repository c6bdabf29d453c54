//! The grid of "beyond the paper": which cases are compared, over tasks, budgets, networks and features.

use crate::{Case, EPSILONS, Ingredient, Method, Setting, Task, Topology};

const TOPOLOGIES: [Topology; 3] = [Topology::Degree(3), Topology::Degree(8), Topology::Ring];
const CONDITIONS: [f64; 2] = [1.0, 100.0];
/// The budget at which ingredients are taken out one by one.
pub(crate) const INGREDIENT_EPSILON: f64 = 1.0;

/// How much of the grid is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The paper's network and data.
    Paper,
    /// Networks of the paper's size.
    Small,
    /// Those with 500 clients too.
    Full,
}

/// The networks and data of the grid.
pub(crate) fn settings(extent: Extent) -> Vec<Setting> {
    let sizes: &[usize] = match extent {
        Extent::Paper => return vec![Setting::PAPER],
        Extent::Small => &[50],
        Extent::Full => &[50, 500],
    };
    let mut settings = Vec::new();
    for &clients in sizes {
        for condition in CONDITIONS {
            settings.extend(TOPOLOGIES.map(|topology| Setting { clients, topology, condition, ..Setting::PAPER }));
        }
    }
    settings
}

/// The cells of the grid, each with free rounds in it.
pub(crate) fn cells(extent: Extent) -> Vec<Case> {
    let mut cells = Vec::new();
    for setting in settings(extent) {
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

/// Whether a case is run with several seeds: the paper's network and data, and all places where ingredients are taken out. A
/// statement about a part of the algorithm would else rest on twenty data sets.
pub(crate) fn is_repeated(case: &Case) -> bool {
    let in_place = |place: Case| Case { method: Method::FreeRounds, ..*case } == place;
    case.setting == Setting::PAPER || ingredient_places().into_iter().any(in_place)
}

/// All runs of this section.
pub fn cases(extent: Extent) -> Vec<Case> {
    let mut cases = Vec::new();
    for cell in cells(extent) {
        cases.extend([cell, Case { method: Method::Zcdp, ..cell }]);
        if has_equal_terms(&cell) {
            cases.push(Case { method: Method::ZcdpEqual, ..cell });
        }
    }
    for place in ingredient_places().into_iter().filter(|place| settings(extent).contains(&place.setting)) {
        let used = Ingredient::ALL.into_iter().filter(|ingredient| is_used(*ingredient, place.task));
        cases.extend(used.map(|ingredient| Case { method: Method::Without(ingredient), ..place }));
    }
    cases
}
