#include "guest/scratch.hpp"

#include <algorithm>
#include <string_view>

#include "guest/lower_folders.hpp"
#include "guest/paths.hpp"

namespace asr {

namespace {

// Of a tree that is mounted where something foreign is nobody sees anything.
bool is_hidden(const Scratch& scratch, const std::string& path) {
  return std::any_of(scratch.foreign.begin(), scratch.foreign.end(),
                     [&](const std::string& foreign) { return is_inside(path, foreign); });
}

// What lies on a disk if there is one, and in memory otherwise.
Scratch::Tree tree_at(std::string path, std::string folder, const LaunchPlan& plan,
                      const LaunchOutcome& outcome) {
  Scratch::Tree tree;
  tree.path = std::move(path);
  tree.base = plan.disk ? outcome.disk : outcome.scratch;
  tree.folder = std::move(folder);
  tree.in_memory = !plan.disk;
  return tree;
}

// Upper layers, parents first.
void add_overlays(Scratch& scratch, const LaunchPlan& plan, const LaunchOutcome& outcome) {
  Scratch::Tree root = tree_at("", "upper", plan, outcome);
  root.overlay = true;
  for (std::size_t i = 0; i < plan.layer_count; ++i)
    if (plan.layers[i].target[0] == '\0') root.lowers.push_back(outcome.lowers[i]);
  // Without a disk nothing of an earlier life lies in a root that cannot be written to.
  if (!plan.read_only || plan.disk) scratch.trees.push_back(std::move(root));
  for (std::size_t i = 0; i < plan.layer_count; ++i) {
    const MountedLayer& layer = plan.layers[i];
    if (layer.target[0] == '\0') continue;
    Scratch::Tree tree =
        tree_at("/" + std::string(layer.target), "upper_" + std::to_string(i), plan, outcome);
    tree.overlay = true;
    tree.lowers.push_back(outcome.lowers[i]);
    if (layer.users) tree.id = kUserId;
    scratch.covered.push_back(tree.path);
    // Where there is nothing to compare it to, nothing can be written.
    if (outcome.lowers[i] >= 0 && !is_hidden(scratch, tree.path))
      scratch.trees.push_back(std::move(tree));
  }
}

// Folders that are mounted as they are.
void add_folders(Scratch& scratch, const LaunchPlan& plan, const LaunchOutcome& outcome) {
  if (!plan.read_only && !plan.disk) return;
  auto add = [&](Scratch::Tree tree) {
    if (scratch.covers(tree.path)) return;  // It is a layer.
    scratch.covered.push_back(tree.path);
    if (is_hidden(scratch, tree.path)) return;
    scratch.trees.push_back(std::move(tree));
  };
  Scratch::Tree tmp = tree_at("/tmp", "tmp", plan, outcome);
  tmp.base = outcome.scratch;
  tmp.in_memory = true;
  tmp.mode = 01777;
  add(std::move(tmp));
  for (auto [path, folder] :
       {std::pair("/workspace", "workspace"), std::pair("/home/user", "home")}) {
    Scratch::Tree tree = tree_at(path, folder, plan, outcome);
    tree.id = kUserId;
    add(std::move(tree));
  }
}

// Calls `use` with each folder on the way to `target`, and with itself.
template <class Use>
void for_each_prefix(std::string_view target, Use use) {
  std::string path;
  while (!target.empty()) {
    std::string_view part = target.substr(0, target.find('/'));
    target.remove_prefix(std::min(target.size(), part.size() + 1));
    if (!part.empty()) use(path.append("/").append(part));
  }
}

// Whether a layer below has the folder: then the launch has made none. In the root it makes them
// all, above whatever there is.
bool was_there(const Scratch& scratch, const std::string& path) {
  const Scratch::Tree* tree = scratch.tree_of(path);
  if (tree == nullptr || tree->path.empty()) return false;
  LowerFolders folders;
  for (int lower : tree->lowers) folders.add(lower);
  std::string name;
  for_each_prefix(path.substr(tree->path.size()), [&](const std::string& below) {
    name = below.substr(below.rfind('/') + 1);
    folders = folders.below(name.c_str());
  });
  return !folders.empty();
}

void add_made(Scratch& scratch, const LaunchPlan& plan) {
  for (const LaunchFolder& folder : kLaunchFolders)
    scratch.made.push_back({"/" + std::string(folder.path), folder.mode, folder.id, std::nullopt});
  if (plan.resolv_conf != nullptr) {
    scratch.made.push_back({"/etc", 0755, 0, std::nullopt});
    scratch.made.push_back({"/etc/resolv.conf", 0644, 0, std::string(plan.resolv_conf)});
  }
  // Volumes, and the folders on the way to them.
  for (std::size_t i = 0; i < plan.volume_count; ++i)
    for_each_prefix(plan.volume_targets[i], [&](const std::string& path) {
      if (scratch.find_made(path) == nullptr && !was_there(scratch, path))
        scratch.made.push_back({path, 0755, 0, {}});
    });
}

void add_foreign(Scratch& scratch, const LaunchPlan& plan) {
  scratch.foreign = {"/proc", "/dev"};
  for (std::size_t i = 0; i < plan.volume_count; ++i) {
    std::string whole;
    for_each_prefix(plan.volume_targets[i], [&](const std::string& path) { whole = path; });
    scratch.foreign.push_back(std::move(whole));
  }
}

}  // namespace

bool Scratch::covers(const std::string& path) const noexcept {
  return std::find(covered.begin(), covered.end(), path) != covered.end();
}

const Scratch::Tree* Scratch::tree_of(std::string_view path) const noexcept {
  const Tree* found = nullptr;
  for (const Tree& tree : trees)
    if (is_inside(path, tree.path.empty() ? "/" : tree.path) &&
        (found == nullptr || tree.path.size() > found->path.size()))
      found = &tree;
  return found;
}

const Scratch::Made* Scratch::find_made(const std::string& path) const noexcept {
  for (const Made& one : made)
    if (one.path == path) return &one;
  return nullptr;
}

Scratch scratch_of(const LaunchPlan& plan, const LaunchOutcome& outcome) {
  Scratch scratch;
  if (outcome.scratch < 0) return scratch;
  scratch.one_id = plan.rootless;
  scratch.descriptors.push_back(outcome.scratch);
  if (outcome.disk >= 0) scratch.descriptors.push_back(outcome.disk);
  for (int lower : outcome.lowers)
    if (lower >= 0) scratch.descriptors.push_back(lower);
  add_foreign(scratch, plan);
  add_overlays(scratch, plan, outcome);
  add_folders(scratch, plan, outcome);
  add_made(scratch, plan);
  scratch.covered.insert(scratch.covered.end(), scratch.foreign.begin(), scratch.foreign.end());
  return scratch;
}

}  // namespace asr
