//! The grid of "beyond the paper": which cases are compared, over tasks, budgets, networks and features; and those with masks.

use crate::{Assumed, Case, EPSILONS, Ingredient, Lost, Method, Setting, Task, Topology};

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

/// The budget of few clients with many records.
pub(crate) const FEW_EPSILON: f64 = 0.5;
/// What one curve per task shows over budgets.
pub(crate) const SHOWN: [Method; 4] = [Method::Zcdp, Method::FreeRounds, Method::Masked(Assumed::One), Method::Centre];
/// What is compared on other networks.
const ELSEWHERE: [Method; 3] = [Method::FreeRounds, Method::Masked(Assumed::Half), Method::Masked(Assumed::One)];

pub(crate) fn case(setting: Setting, task: Task, method: Method, epsilon: f64) -> Case {
    Case { setting, task, method, epsilon }
}

/// Networks on which masks are compared too with `--full`: a ring, and features of different variances.
fn others() -> [Setting; 2] {
    [Setting { topology: Topology::Ring, ..Setting::PAPER }, Setting { condition: 100.0, ..Setting::PAPER }]
}

/// All runs with masks.
pub fn trust_cases(full: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for task in Task::ALL {
        for epsilon in EPSILONS {
            cases.extend(SHOWN.map(|method| case(Setting::PAPER, task, method, epsilon)));
        }
        let varied = Assumed::ALL.map(Method::Masked).into_iter();
        let lost = [Lost::One, Lost::Three].map(Method::MaskedLosing);
        cases.extend(varied.chain(lost).map(|method| case(Setting::PAPER, task, method, INGREDIENT_EPSILON)));
        for setting in [Setting::TEN, Setting::FIVE] {
            cases.extend(
                [Method::FreeRounds, few(setting), Method::MaskedLosing(Lost::One), Method::Centre]
                    .map(|method| case(setting, task, method, FEW_EPSILON)),
            );
        }
        if full {
            for setting in others() {
                cases.extend(ELSEWHERE.map(|method| case(setting, task, method, INGREDIENT_EPSILON)));
            }
        }
    }
    let mut distinct: Vec<Case> = Vec::new();
    cases.into_iter().for_each(|case| {
        if !distinct.contains(&case) {
            distinct.push(case)
        }
    });
    distinct
}

/// What few clients assume: a fifth of ten, and one of five.
pub(crate) fn few(setting: Setting) -> Method {
    Method::Masked(if setting.clients == 5 { Assumed::One } else { Assumed::Fifth })
}
