//! The shape of the code: no cycles between the modules of a crate, arrows between crates in one direction only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The modules of a crate that some code names after `crate::`, also in `crate::{a, b::c}`.
fn named_modules(code: &str) -> BTreeSet<String> {
    let identifier = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut start = true;
            for (i, c) in group.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => start = true,
                    c if start && !c.is_whitespace() => {
                        found.insert(identifier(&group[i..]));
                        start = false;
                    }
                    _ => {}
                }
            }
        } else {
            found.insert(identifier(rest));
        }
    }
    found
}

type Edges = BTreeMap<String, BTreeSet<String>>;

/// Which top-level modules of a crate use which others.
fn module_edges(source: &Path) -> Edges {
    let mut files = Vec::new();
    rust_files(source, &mut files);
    let module = |file: &Path| {
        let inside = file.strip_prefix(source).unwrap();
        inside.components().next().unwrap().as_os_str().to_string_lossy().trim_end_matches(".rs").to_string()
    };
    let modules: BTreeSet<String> = files.iter().map(|file| module(file)).collect();
    let mut edges = Edges::new();
    for file in files.iter().filter(|file| !["lib", "main"].contains(&module(file).as_str())) {
        let text = std::fs::read_to_string(file).unwrap();
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        // Tests at the end of a file may use what they like.
        let code = code.join("\n");
        let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let own = module(file);
        let used = named_modules(code).into_iter().filter(|used| modules.contains(used) && *used != own);
        edges.entry(own.clone()).or_default().extend(used);
    }
    edges
}

/// The modules in an order in which each uses only those before it, or those that lie on cycles.
fn order(edges: &Edges) -> Result<Vec<String>, Vec<String>> {
    let mut rest = edges.clone();
    let mut order: Vec<String> = Vec::new();
    while !rest.is_empty() {
        let free: Vec<String> = rest
            .iter()
            .filter(|(_, used)| used.iter().all(|u| !rest.contains_key(u)))
            .map(|(m, _)| m.clone())
            .collect();
        if free.is_empty() {
            return Err(rest.into_keys().collect());
        }
        free.iter().for_each(|module| drop(rest.remove(module)));
        order.extend(free);
    }
    Ok(order)
}

#[test]
fn no_crate_has_a_cycle_of_modules() {
    for entry in std::fs::read_dir(crates()).unwrap() {
        let folder = entry.unwrap().path();
        let edges = module_edges(&folder.join("src"));
        let order = order(&edges).unwrap_or_else(|cycle| panic!("{}: a cycle among {cycle:?}", folder.display()));
        println!("{}: {}", folder.file_name().unwrap().to_string_lossy(), order.join(" <- "));
    }
}

#[test]
fn cycles_are_found() {
    let edges = |pairs: &[(&str, &[&str])]| -> Edges {
        pairs.iter().map(|(m, used)| (m.to_string(), used.iter().map(|u| u.to_string()).collect())).collect()
    };
    assert_eq!(order(&edges(&[("a", &["b"]), ("b", &[])])).unwrap(), ["b", "a"]);
    assert_eq!(order(&edges(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &[])])).unwrap_err(), ["a", "b", "c"]);
    let names = named_modules("use crate::{a, b::{c, d},\n e::f}; crate::g::h();");
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a", "b", "e", "g"]);
}

/// core <- data <- sim <- plan <- paper; core, data <- peer <- audit; all <- cli. What only tests need does not count.
#[test]
fn crates_depend_in_one_direction() {
    let allowed: [(&str, &[&str]); 10] = [
        ("core", &[]),
        ("data", &["core", "report"]),
        ("sim", &["core", "data", "report"]),
        ("plan", &["core", "data", "sim", "report"]),
        ("paper", &["core", "data", "sim", "plan"]),
        ("peer", &["core", "data", "report"]),
        ("report", &[]),
        ("audit", &["core", "peer", "report"]),
        ("testing", &["core", "data"]),
        ("cli", &["core", "data", "sim", "plan", "paper", "peer", "audit", "report"]),
    ];
    for (name, allowed) in allowed {
        let text = std::fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
        let needed = text.split("[dev-dependencies]").next().unwrap();
        for line in needed.lines().filter_map(|line| line.strip_prefix("undertone-")) {
            let used = line.split(['.', ' ']).next().unwrap();
            assert!(allowed.contains(&used), "{name} must not depend on {used}");
        }
    }
}
