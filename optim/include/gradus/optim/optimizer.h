#pragma once
#include <gradus/tensor.h>

#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gradus::optim {

/// What an optimizer is given: tensors, or tensors with names (`model.named_parameters()`), under which errors and
/// state_dict then know them. Tensors without a name are known by their number: "0", "1", …
class GRADUS_API Parameters {
 public:
  Parameters(std::initializer_list<Tensor> tensors);
  Parameters(const std::vector<Tensor>& tensors);
  Parameters(std::vector<std::pair<std::string, Tensor>> named) : named_(std::move(named)) {}

  const std::vector<std::pair<std::string, Tensor>>& named() const { return named_; }

 private:
  std::vector<std::pair<std::string, Tensor>> named_;
};

/// Tensors by name: moments, steps and options (these as tensors of one element). The type of nn::StateDict.
using StateDict = std::map<std::string, Tensor, std::less<>>;

/// Moves parameters along their gradients. Parameters come in groups, each with options of its own.
///
/// Refused with an Error: no parameters, one given twice, one that does not require a gradient or that an op made.
/// A parameter that has no gradient in a step, or was frozen since, does not move, and neither does its state.
class GRADUS_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update of every parameter that has a gradient, in place and without history.
  void step();
  /// Forgets all gradients.
  void zero_grad();

  /// The learning rate of a group.
  double lr(std::size_t group = 0) const;
  /// Sets the rate of all groups, or of one. Error unless it is finite and not negative.
  void set_lr(double lr);
  void set_lr(double lr, std::size_t group);
  std::size_t num_groups() const { return groups_; }
  std::vector<Tensor> parameters() const;

  /// Everything that the next step depends on besides parameters and gradients: "state.NAME.step", moments such as
  /// "state.NAME.exp_avg", and each group's options, "groups.0.lr". The tensors are copies.
  StateDict state_dict() const;
  /// Goes on exactly where `state` was taken, options included, whatever this optimizer was constructed with. Error,
  /// before anything is changed, that lists every missing, unexpected and mis-shaped name; the optimizer must have been
  /// built with the same parameters (names or order) and number of groups.
  void load_state_dict(const StateDict& state);

 protected:
  using VisitNumber = std::function<void(const char* name, double& number)>;
  struct Slot {
    Tensor param;
    std::string name;
    std::size_t group;
    std::int64_t step;            // updates so far
    std::array<Tensor, 3> state;  // undefined before the first update
  };

  explicit Optimizer(const char* kind) : kind_(kind) {}
  /// Checks and takes the parameters of one more group, whose options the caller has checked already.
  void add_slots(const Parameters& parameters);

  /// slot.param's update along grad; slot.step has been counted up.
  virtual void update(Slot& slot, const Tensor& grad) = 0;
  /// What slot.state[i] is called.
  virtual std::span<const char* const> state_names() const = 0;
  /// Whether a parameter of the group that was updated has state[i].
  virtual bool keeps_state(std::size_t group, std::size_t i) const = 0;
  /// The one list of a group's options: visit("lr", options.lr), …
  virtual void visit_options(std::size_t group, const VisitNumber& visit) = 0;
  virtual void check_options(std::size_t group) const = 0;
  static void visit_flag(const VisitNumber& visit, const char* name, bool& flag);

 private:
  void check_group(const char* op, std::size_t group) const;
  StateDict options_dict() const;
  void check_names(const StateDict& state);
  void load_options(const StateDict& state);

  const char* kind_;
  std::size_t groups_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace gradus::optim
