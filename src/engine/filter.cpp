// A program is a balanced tree over call numbers whose leaves answer at once or look at arguments.
// At installation the kernel runs it in its head once per call number, to remember those that are
// allowed whatever the arguments: a linear list of 350 comparisons costs a millisecond there, the
// tree a small part of it. For the same reason no argument is loaded above the leaf that needs it.
#include "engine/filter.hpp"

#include <linux/audit.h>
#include <linux/bpf_common.h>
#include <linux/seccomp.h>

#include <cerrno>
#include <cstddef>
#include <map>
#include <span>
#include <string>

namespace asr {
namespace {

// Fragments run forward from their first instruction and are independent of their position. Leaves
// end in returns, so that fragments can be laid one after another.
using Fragment = FilterProgram;

constexpr std::size_t kMaxJump = 255;  // Of a conditional jump; it has eight bits.

sock_filter statement(int code, std::uint32_t k) {
  return {.code = static_cast<std::uint16_t>(code), .jt = 0, .jf = 0, .k = k};
}

sock_filter jump(int condition, std::uint32_t k, std::size_t if_true, std::size_t if_false) {
  return {.code = static_cast<std::uint16_t>(BPF_JMP | condition | BPF_K),
          .jt = static_cast<std::uint8_t>(if_true),
          .jf = static_cast<std::uint8_t>(if_false),
          .k = k};
}

sock_filter load(std::size_t offset) {
  return statement(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}

void append(Fragment& out, const Fragment& more) {
  out.insert(out.end(), more.begin(), more.end());
}

sock_filter answer(Verdict verdict, Refusals refusals) {
  switch (verdict.kind) {
    case Verdict::Kind::allow:
      return statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    case Verdict::Kind::refuse:
      if (refusals == Refusals::told && verdict.err != ENOSYS)
        return statement(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
      return statement(
          BPF_RET | BPF_K,
          SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(verdict.err) & SECCOMP_RET_DATA));
    case Verdict::Kind::kill:
      break;
  }
  return statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
}

// Loads one half of an argument, masked. Both machines are little-endian.
void load_half(Fragment& out, unsigned arg, std::size_t half, std::uint32_t mask) {
  out.push_back(load(offsetof(seccomp_data, args) + arg * sizeof(std::uint64_t) + half * 4));
  if (mask != ~std::uint32_t{0}) out.push_back(statement(BPF_ALU | BPF_AND | BPF_K, mask));
}

// Falls out of its end if the check holds, else jumps `skip` instructions beyond.
Result<Fragment> compile_check(const ArgCheck& check, std::size_t skip) {
  const auto low_mask = static_cast<std::uint32_t>(check.mask);
  const auto high_mask = static_cast<std::uint32_t>(check.mask >> 32);
  const std::size_t count = check.any_of.size();
  if (check.arg > 5 || count == 0) return fail(Errc::internal, "a check without argument or value");
  if (high_mask != 0 && count != 1) return fail(Errc::internal, "a wide check with many values");
  for (std::uint64_t value : check.any_of)
    if ((value & ~check.mask) != 0) return fail(Errc::internal, "a check that can never hold");

  Fragment low;
  load_half(low, check.arg, 0, low_mask);
  for (std::size_t i = 0; i < count; ++i)
    low.push_back(jump(BPF_JEQ, static_cast<std::uint32_t>(check.any_of[i]), count - 1 - i,
                       i + 1 == count ? skip : 0));
  if (low.size() + skip > kMaxJump) return fail(Errc::internal, "a clause longer than a jump");
  if (high_mask == 0) return low;

  Fragment out;
  load_half(out, check.arg, 1, high_mask);
  out.push_back(
      jump(BPF_JEQ, static_cast<std::uint32_t>(check.any_of[0] >> 32), 0, low.size() + skip));
  append(out, low);
  return out;
}

Result<Fragment> compile_rule(const SyscallRule& rule, Refusals refusals) {
  Fragment out;
  for (const Clause& clause : rule.clauses) {
    Fragment body{answer(clause.then, refusals)};
    for (auto check = clause.when.rbegin(); check != clause.when.rend(); ++check) {
      Fragment longer = TRY(compile_check(*check, body.size()));
      append(longer, body);
      body = std::move(longer);
    }
    append(out, body);
  }
  out.push_back(answer(rule.otherwise, refusals));
  return out;
}

// All numbers from `first` to that of the next leaf.
struct Leaf {
  std::uint32_t first;
  Fragment code;
};

bool same(const Fragment& a, const Fragment& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const sock_filter& x, const sock_filter& y) {
                      return x.code == y.code && x.jt == y.jt && x.jf == y.jf && x.k == y.k;
                    });
}

Result<std::vector<Leaf>> leaves_of(const SyscallRules& rules, Refusals refusals) {
  const Fragment unlisted{answer(rules.unlisted, refusals)};
  std::map<std::uint32_t, Fragment> starts{{0, unlisted}};
  for (const SyscallRule& rule : rules.rules) {
    if (rule.number >= kX32Bit)
      return fail(Errc::internal, "not a number: " + std::string(rule.name));
    starts.insert_or_assign(rule.number, TRY(compile_rule(rule, refusals)));
    starts.try_emplace(rule.number + 1, unlisted);
  }
  if (rules.machine == Machine::x86_64)
    starts.insert_or_assign(kX32Bit, Fragment{answer(kKill, refusals)});
  starts.insert_or_assign(kSkippedCall, Fragment{answer(kAllow, refusals)});

  std::vector<Leaf> out;
  for (auto& [first, code] : starts)
    if (out.empty() || !same(out.back().code, code)) out.push_back({first, std::move(code)});
  return out;
}

Fragment compile_tree(std::span<const Leaf> leaves) {
  if (leaves.size() == 1) return leaves[0].code;
  const std::size_t middle = leaves.size() / 2;
  const Fragment below = compile_tree(leaves.first(middle));
  Fragment out;
  if (below.size() <= kMaxJump) {
    out.push_back(jump(BPF_JGE, leaves[middle].first, below.size(), 0));
  } else {
    out.push_back(jump(BPF_JGE, leaves[middle].first, 0, 1));
    out.push_back(statement(BPF_JMP | BPF_JA, static_cast<std::uint32_t>(below.size())));
  }
  append(out, below);
  append(out, compile_tree(leaves.subspan(middle)));
  return out;
}

}  // namespace

Result<FilterProgram> compile(const SyscallRules& rules, Refusals refusals) {
  const std::uint32_t machine =
      rules.machine == Machine::x86_64 ? AUDIT_ARCH_X86_64 : AUDIT_ARCH_AARCH64;
  FilterProgram out{
      load(offsetof(seccomp_data, arch)),
      jump(BPF_JEQ, machine, 1, 0),
      answer(kKill, refusals),  // An error would not do: a 32-bit program could not even exit.
      load(offsetof(seccomp_data, nr)),
  };
  append(out, compile_tree(TRY(leaves_of(rules, refusals))));
  if (out.size() > BPF_MAXINSNS) return fail(Errc::internal, "the filter is too long");
  return out;
}

Result<FilterProgram> compile_fence() { return compile(fence_rules(), Refusals::quiet); }

Result<FilterProgram> compile_gate(SyscallTier tier, std::uint64_t secret, Refusals refusals) {
  return compile(gate_rules(tier, secret), refusals);
}

}  // namespace asr
