//! The import graph of a crate: which file names an item that another file defines.
//!
//! A re-export is followed to the file that defines the item and is no import itself. Code under
//! `#[cfg(test)]` does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use syn::{Item, UseTree, Visibility};

/// A module path below the crate's root, such as `["coordinator", "actor"]`.
pub type Module = Vec<String>;

/// One file that names an item of another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    pub from: Module,
    pub to: Module,
    /// The path of the item, as far as the graph follows it.
    pub name: String,
}

/// The modules of a crate with a file each, and the imports between them.
#[derive(Debug, Default)]
pub struct Graph {
    pub files: BTreeMap<Module, PathBuf>,
    pub imports: BTreeSet<Import>,
}

/// Reads the crate that has its `lib.rs` in `src`.
///
/// # Panics
/// Panics if a file cannot be read or is not valid Rust.
#[must_use]
pub fn read(src: &Path) -> Graph {
    let mut reader = Reader::default();
    reader.load(Vec::new(), &src.join("lib.rs"));
    reader.graph()
}

impl Graph {
    /// Groups of files that import each other in a circle.
    #[must_use]
    pub fn circles(&self) -> Vec<BTreeSet<Module>> {
        let reach: BTreeMap<&Module, BTreeSet<&Module>> = self
            .files
            .keys()
            .map(|module| (module, self.reachable(module)))
            .collect();
        let mut circles = BTreeSet::new();
        for (module, reached) in &reach {
            let circle: BTreeSet<Module> = reached
                .iter()
                .filter(|other| reach[**other].contains(module))
                .map(|other| (*other).clone())
                .collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    fn reachable<'a>(&'a self, from: &'a Module) -> BTreeSet<&'a Module> {
        let mut found = BTreeSet::new();
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            for import in self.imports.iter().filter(|import| import.from == *module) {
                if found.insert(&import.to) {
                    open.push(&import.to);
                }
            }
        }
        found
    }

    /// Returns true if one folder holds all files of the circle: the file of a module and the files
    /// right below it that have no folder themselves.
    #[must_use]
    pub fn in_one_folder(&self, circle: &BTreeSet<Module>) -> bool {
        let leaf = |module: &Module| {
            !self
                .files
                .keys()
                .any(|other| other.len() > module.len() && other.starts_with(module))
        };
        let parents = circle
            .iter()
            .flat_map(|module| [Some(module.as_slice()), module.split_last().map(|(_, parent)| parent)]);
        parents.flatten().any(|home| {
            let belongs = |module: &Module| {
                module == home || (module.len() == home.len() + 1 && module.starts_with(home) && leaf(module))
            };
            circle.iter().all(belongs)
        })
    }
}

/// The names found before they are resolved.
#[derive(Default)]
struct Reader {
    files: BTreeMap<Module, PathBuf>,
    /// Module of the file, path of the item.
    named: Vec<(Module, Module)>,
    /// Path of a re-export -> path that it stands for.
    exports: BTreeMap<Module, Module>,
    /// Module -> modules from which it re-exports every item.
    globs: BTreeMap<Module, Vec<Module>>,
}

impl Reader {
    fn load(&mut self, module: Module, file: &Path) {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let is_root = ["lib.rs", "mod.rs"].iter().any(|name| file.ends_with(name));
        let folder = if is_root {
            file.with_file_name("")
        } else {
            file.with_extension("")
        };
        self.files.insert(module.clone(), file.to_owned());
        self.items(&module, &module, &folder, &parsed.items);
    }

    /// Reads items. `own` is the module of the file, `here` the module of the items; they differ in
    /// inline modules.
    fn items(&mut self, own: &Module, here: &Module, folder: &Path, items: &[Item]) {
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            match item {
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let path = below(here, &name);
                    match &child.content {
                        Some((_, items)) => self.items(own, &path, &folder.join(&name), items),
                        None => {
                            let flat = folder.join(format!("{name}.rs"));
                            let file = if flat.is_file() {
                                flat
                            } else {
                                folder.join(&name).join("mod.rs")
                            };
                            self.load(path, &file);
                        }
                    }
                }
                Item::Use(item) => {
                    let exported = !matches!(item.vis, Visibility::Inherited);
                    self.tree(own, here, exported, &mut Vec::new(), &item.tree);
                }
                item => {
                    let mut paths = Paths { found: Vec::new() };
                    paths.visit_item(item);
                    for path in paths.found {
                        self.name(own, here, &path);
                    }
                }
            }
        }
    }

    fn tree(&mut self, own: &Module, here: &Module, exported: bool, lead: &mut Module, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                lead.push(path.ident.to_string());
                self.tree(own, here, exported, lead, &path.tree);
                lead.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(own, here, exported, lead, tree);
                }
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.leaf(own, here, exported, lead, &name, &name);
            }
            UseTree::Rename(rename) => {
                self.leaf(
                    own,
                    here,
                    exported,
                    lead,
                    &rename.ident.to_string(),
                    &rename.rename.to_string(),
                );
            }
            UseTree::Glob(_) => {
                let Some(target) = absolute(here, lead) else { return };
                if exported {
                    self.globs.entry(here.clone()).or_default().push(target);
                } else {
                    self.named.push((own.clone(), target));
                }
            }
        }
    }

    fn leaf(&mut self, own: &Module, here: &Module, exported: bool, lead: &Module, name: &str, alias: &str) {
        let path = if name == "self" {
            lead.clone()
        } else {
            below(lead, name)
        };
        let last = if alias == "self" {
            path.last().cloned().unwrap_or_default()
        } else {
            alias.to_owned()
        };
        let target = absolute(here, &path).unwrap_or_else(|| here.iter().chain(&path).cloned().collect());
        // A child module sees private imports of its parent as well.
        self.exports.insert(below(here, &last), target.clone());
        if !exported {
            self.named.push((own.clone(), target));
        }
    }

    fn name(&mut self, own: &Module, here: &Module, path: &Module) {
        // A path without `crate`, `self` or `super` may begin with a child module. That is resolved
        // when all files are loaded.
        let target = absolute(here, path).unwrap_or_else(|| here.iter().chain(path).cloned().collect());
        self.named.push((own.clone(), target));
    }

    /// Returns the file that defines the item at `path`, and the resolved path.
    fn home(&self, path: &Module) -> Option<(Module, Module)> {
        let mut path = path.clone();
        for _ in 0..8 {
            let Some(next) = self.step(&path) else { break };
            path = next;
        }
        let known = (1..=path.len()).rev().map(|length| &path[..length]);
        let module = known
            .into_iter()
            .find(|module| self.files.contains_key(*module))?
            .to_vec();
        Some((module, path))
    }

    /// Returns `path` with its longest re-exported beginning replaced, if it has one.
    fn step(&self, path: &Module) -> Option<Module> {
        for length in (1..=path.len()).rev() {
            let (begin, rest) = path.split_at(length);
            let named = self.exports.get(begin).cloned();
            let target = named.or_else(|| {
                let (name, module) = begin.split_last()?;
                let globs = self.globs.get(module)?;
                let is_known = |target: &Module| {
                    let path = below(target, name);
                    self.files.contains_key(&path) || self.exports.contains_key(&path)
                };
                globs
                    .iter()
                    .find(|target| is_known(target))
                    .map(|target| below(target, name))
            });
            if let Some(target) = target.filter(|target| target != begin) {
                return Some(target.into_iter().chain(rest.iter().cloned()).collect());
            }
        }
        None
    }

    fn graph(self) -> Graph {
        let mut imports = BTreeSet::new();
        for (from, path) in &self.named {
            if let Some((to, path)) = self.home(path).filter(|(to, _)| to != from && !from.is_empty()) {
                // Other names belong to the file itself or to another crate.
                imports.insert(Import {
                    from: from.clone(),
                    to,
                    name: path.join("::"),
                });
            }
        }
        Graph {
            files: self.files,
            imports,
        }
    }
}

fn below(module: &[String], name: &str) -> Module {
    let mut path = module.to_vec();
    path.push(name.to_owned());
    path
}

/// Returns a path that begins with `crate`, `self` or `super`, from the crate's root.
fn absolute(here: &Module, path: &Module) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let mut base = match first.as_str() {
        "crate" => Vec::new(),
        "self" => here.clone(),
        "super" => here.split_last()?.1.to_vec(),
        _ => return None,
    };
    let mut rest = rest.iter().peekable();
    while rest.next_if(|segment| *segment == "super").is_some() {
        base.pop();
    }
    base.extend(rest.cloned());
    Some(base)
}

/// Returns true if an item is compiled for tests alone.
#[must_use]
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|condition| condition == "test")
    })
}

/// Returns the attributes of an item.
#[must_use]
pub fn attributes(item: &Item) -> &[syn::Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Every path of several segments in an item, including those in macros' arguments.
struct Paths {
    found: Vec<Module>,
}

impl Visit<'_> for Paths {
    /// Skips `pub(in crate::a)`, which names a module and no item of it.
    fn visit_vis_restricted(&mut self, _: &syn::VisRestricted) {}

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        fn leaves(lead: &mut Module, tree: &UseTree, found: &mut Vec<Module>) {
            match tree {
                UseTree::Path(path) => {
                    lead.push(path.ident.to_string());
                    leaves(lead, &path.tree, found);
                    lead.pop();
                }
                UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(lead, tree, found)),
                UseTree::Name(syn::UseName { ident }) | UseTree::Rename(syn::UseRename { ident, .. }) => {
                    found.push(below(lead, &ident.to_string()));
                }
                UseTree::Glob(_) => found.push(lead.clone()),
            }
        }
        leaves(&mut Vec::new(), &item.tree, &mut self.found);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            self.found
                .push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &syn::Macro) {
        // Arguments are tokens: `crate :: base :: fault` is found as text.
        let text = called.tokens.to_string().replace(" :: ", "::");
        for word in text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
            let path: Module = word.split("::").map(str::to_owned).collect();
            if path.len() > 1 && ["crate", "super", "self"].contains(&path[0].as_str()) {
                self.found.push(path);
            }
        }
    }
}
