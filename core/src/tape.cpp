// The read-only view of the tape: its list, its picture, and its observer. Loops, never recursion.
#include <gradus/print.h>
#include <gradus/tape.h>

#include <algorithm>
#include <numeric>
#include <ostream>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "internal.h"
#include "observe.h"

namespace gradus {

namespace detail {

constinit thread_local const BackwardObserver* observer = nullptr;

namespace {

/// x's memory, without history, name or gradient.
Tensor view_of(const Tensor& x) { return alias(x, nullptr); }

/// The same of a tensor that may be dying in another thread: the caller holds its node's lock, which its end waits for.
Tensor view_of(const TensorImpl& x) {
  auto ref = Ref<TensorImpl>::adopt(new TensorImpl);
  stand_on(*ref, x);
  return Tensor(std::move(ref));
}

std::uint64_t id_of(const Ref<Node>& node) { return node ? node->order : 0; }

TapeNode view_of(Node& node) {
  TapeNode view;
  view.id = node.order;
  view.op = node.op;
  view.is_leaf = node.leaf;
  view.shape = node.shape;
  view.dtype = node.dtype;
  view.consumed = node.consumed;
  for (const Ref<Node>& edge : node.edges()) view.inputs.push_back(id_of(edge));
  for (const auto& [slot, saved, is_output] : node.saved()) {
    view.saved.push_back({.slot = slot,
                          .id = is_output ? node.order : id_of(saved.impl().node),
                          .is_output = is_output,
                          .shape = saved.shape(),
                          .dtype = saved.dtype(),
                          .bytes = saved.numel() * size_of(saved.dtype()),
                          .value = view_of(saved)});
    if (is_output) view.value = view.saved.back().value;
  }
  const SpinGuard guard(node.lock);
  if (const TensorImpl* tensor = node.sink) {
    view.value = view_of(*tensor);
    if (tensor->extras) {
      view.name = tensor->extras->name;
      view.grad = Tensor(tensor->extras->grad);
    }
  }
  return view;
}

/// Everything below the roots, oldest first.
std::vector<Node*> nodes_below(const std::vector<Tensor>& roots, const char* caller) {
  std::vector<Node*> nodes;
  std::unordered_set<const Node*> seen;
  const auto visit = [&](Node* node) {
    if (node && seen.insert(node).second) nodes.push_back(node);
  };
  for (const Tensor& root : roots) {
    check_defined(root, caller, "the tensor");
    visit(root.impl().node.get());
  }
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (const Ref<Node>& edge : nodes[i]->edges()) visit(edge.get());
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->order < b->order; });
  return nodes;
}

/// Takes the observer away while it runs, so that it does not watch itself.
class Unobserved {
 public:
  Unobserved() : before_(std::exchange(observer, nullptr)) {}
  ~Unobserved() { observer = before_; }
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;

 private:
  const BackwardObserver* before_;
  NoGradGuard unrecorded_;
};

}  // namespace

std::optional<TapeNode> show_step(Node& node, const Tensor& upstream, std::span<const Tensor> gradients) {
  const BackwardObserver& watching = *observer;
  const Unobserved guard;
  TapeNode view = view_of(node);
  if (watching.step) watching.step({view, upstream, gradients});
  return view;
}

void show_contribution(const TapeNode& node, std::size_t slot, const Node& input, const Tensor& gradient,
                       const Tensor& before) {
  if (!observer || !observer->contribution) return;
  const BackwardObserver& watching = *observer;
  const Unobserved guard;
  watching.contribution({node, slot, input.order, gradient, before});
}

}  // namespace detail

BackwardObserverGuard::BackwardObserverGuard(BackwardObserver observer)
    : observer_(std::move(observer)), before_(std::exchange(detail::observer, &observer_)) {}
BackwardObserverGuard::~BackwardObserverGuard() { detail::observer = before_; }

std::vector<TapeNode> tape(const std::vector<Tensor>& roots) {
  std::vector<TapeNode> views;
  for (detail::Node* node : detail::nodes_below(roots, "tape")) views.push_back(detail::view_of(*node));
  return views;
}

std::vector<TapeNode> tape(const Tensor& root) { return tape(std::vector<Tensor>{root}); }

std::string str(const TapeNode& node) {
  std::string text = "#" + std::to_string(node.id) + " " + node.op;
  if (!node.name.empty()) text += " '" + node.name + "'";
  text += " " + node.shape.str() + " " + name(node.dtype);
  const char* before = " from #";
  for (const std::uint64_t input : node.inputs) {
    if (input == 0) continue;
    text += before + std::to_string(input);
    before = " #";
  }
  std::int64_t bytes = 0;
  before = ", saves ";
  for (const TapeSaved& saved : node.saved) {
    text += before + saved.shape.str();
    before = " ";
    bytes += saved.bytes;
  }
  if (!node.saved.empty()) text += " (" + std::to_string(bytes) + " bytes)";
  if (node.consumed) text += ", consumed";
  return text;
}

std::ostream& operator<<(std::ostream& os, const TapeNode& node) { return os << str(node); }

namespace {

/// The text between the quotes of a label; each line is set to the left where there are several.
void add_label(std::string& dot, const std::string& text, const char* line_end = "\\n") {
  for (const char c : text) {
    if (c == '\n') {
      dot += line_end;
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      if (c == '"' || c == '\\') dot += '\\';
      dot += c;
    }
  }
}

void add_numbers(std::string& dot, const char* what, const Tensor& numbers) {
  if (!numbers.defined()) return;
  dot += std::string("\\n") + what + "\\n";
  add_label(dot, str(numbers), "\\l");
  dot += "\\l";
}

}  // namespace

std::string to_dot(const Tensor& root, const DotOptions& options) {
  const std::vector<TapeNode> nodes = tape(root);
  std::unordered_map<std::uint64_t, std::size_t> place;
  for (std::size_t i = 0; i < nodes.size(); ++i) place[nodes[i].id] = i;
  // An output that its users saved has its numbers there.
  std::vector<Tensor> values(nodes.size());
  if (options.values) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].value.defined()) values[i] = nodes[i].value;
      for (const TapeSaved& saved : nodes[i].saved)
        if (const auto at = place.find(saved.id); at != place.end() && !values[at->second].defined())
          values[at->second] = saved.value;
    }
  }

  PrintOptions print = print_options();
  print.footer = false;
  const PrintOptionsGuard guard(print);
  std::string dot = "digraph tape {\n  node [shape=box, fontname=\"monospace\"];\n";
  if (!options.title.empty()) {
    dot += "  labelloc=\"t\";\n  label=\"";
    add_label(dot, options.title);
    dot += "\";\n";
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const TapeNode& node = nodes[i];
    dot += "  n" + std::to_string(i) + " [label=\"";
    if (!node.name.empty()) add_label(dot, node.name + (node.is_leaf ? "" : " = "));
    if (!node.is_leaf || node.name.empty()) add_label(dot, node.op);
    dot += "\\n" + node.shape.str() + " " + name(node.dtype);
    if (options.saved && !node.saved.empty()) {
      dot += "\\nsaves";
      for (const TapeSaved& saved : node.saved) dot += " " + saved.shape.str();
    }
    if (options.values) add_numbers(dot, "value", values[i]);
    if (options.gradients) add_numbers(dot, "gradient", node.grad);
    dot += node.is_leaf ? "\", style=filled, fillcolor=\"#d9e8fb\"];\n" : "\"];\n";
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto& inputs = nodes[i].inputs;
    for (std::size_t slot = 0; slot < inputs.size(); ++slot) {
      if (inputs[slot] == 0) continue;
      dot += "  n" + std::to_string(place.at(inputs[slot])) + " -> n" + std::to_string(i);
      // Where an op tells its inputs apart, so does the picture.
      if (inputs.size() > 1) dot += " [label=\"" + std::to_string(slot) + "\"]";
      dot += ";\n";
    }
  }
  return dot += "}\n";
}

}  // namespace gradus
