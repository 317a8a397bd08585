// A stand-in for AMD's libamdhip64: memory of the device is the host's, work is done when it is given, and
// arguments are checked as HIP's documentation has them. Where HIP's header is, it checks these signatures.
#if __has_include(<hip/hip_runtime_api.h>)
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#else
#include <cstddef>
typedef int hipError_t;
typedef int hipMemcpyKind;
typedef int hipStreamCaptureMode;
typedef struct Stream* hipStream_t;
typedef struct Event* hipEvent_t;
typedef struct Graph* hipGraph_t;
typedef struct Exec* hipGraphExec_t;
typedef struct Node* hipGraphNode_t;
#endif
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <vector>

namespace {
enum : int {
  OK = 0, INVALID_VALUE = 1, INVALID_PITCH = 12, INVALID_DIRECTION = 21, ILLEGAL_STATE = 401,
  ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, CAPTURE_UNSUPPORTED = 900, CAPTURE_UNMATCHED = 903,
  CAPTURE_UNJOINED = 904,
};
using Work = std::function<void()>;
using Works = std::vector<Work>;
struct Capture {
  void* origin;
  Works works;
  std::set<void*> open;  // streams that the origin does not wait for yet
};
std::map<char*, std::size_t> registered;
std::map<void*, Capture*> capturing;                      // by stream
std::map<void*, std::pair<void*, Capture*>> recorded;     // by event
std::set<Works*> graphs, execs;
std::ptrdiff_t distance = 0;
long calls = 0, launches = 0;

hipError_t is(int status) { return hipError_t(status); }
bool holds(const void* address, std::map<char*, std::size_t>::iterator& found) {
  for (found = registered.begin(); found != registered.end(); ++found)
    if (found->first <= address && address < found->first + found->second) return true;
  return false;
}
hipError_t give(void* stream, Work work) {
  ++calls;
  const auto found = capturing.find(stream);
  if (found == capturing.end()) {
    work();
  } else {
    found->second->works.push_back(work);
    if (stream != found->second->origin) found->second->open.insert(stream);
  }
  return is(OK);
}
}  // namespace

extern "C" {
// For tests.
void stand_in_place(std::ptrdiff_t of_devices) { distance = of_devices; }
long stand_in_registered() { return long(registered.size()); }
long stand_in_graphs() { return long(graphs.size() + execs.size()); }
long stand_in_calls() { return calls; }
long stand_in_launches() { return launches; }

hipError_t hipMemcpyAsync(void* target, const void* source, std::size_t size, hipMemcpyKind kind, hipStream_t stream) {
  if (int(kind) < 0 || int(kind) > 4) return is(INVALID_DIRECTION);
  if (size && (!target || !source)) return is(INVALID_VALUE);
  return give(stream, [=] { std::memmove(target, source, size); });
}
hipError_t hipMemcpy2DAsync(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                            std::size_t width, std::size_t height, hipMemcpyKind kind, hipStream_t stream) {
  if (int(kind) < 0 || int(kind) > 4) return is(INVALID_DIRECTION);
  if (!width || !height || !target || !source) return is(INVALID_VALUE);
  if (target_pitch < width || source_pitch < width) return is(INVALID_PITCH);
  if (target_pitch > INT32_MAX || source_pitch > INT32_MAX) return is(INVALID_PITCH);
  return give(stream, [=] {
    for (std::size_t row = 0; row < height; ++row)
      std::memmove((char*)target + row * target_pitch, (const char*)source + row * source_pitch, width);
  });
}
hipError_t hipHostRegister(void* host, std::size_t size, unsigned flags) {
  if (!host || !size || flags & ~0xfu) return is(INVALID_VALUE);
  for (auto [first, length] : registered)
    if (first < (char*)host + size && (char*)host < first + length) return is(ALREADY_REGISTERED);
  registered[(char*)host] = size;
  return is(OK);
}
hipError_t hipHostUnregister(void* host) { return is(registered.erase((char*)host) ? OK : NOT_REGISTERED); }
hipError_t hipHostGetDevicePointer(void** device, void* host, unsigned flags) {
  std::map<char*, std::size_t>::iterator found;
  if (!device || flags || !holds(host, found)) return is(INVALID_VALUE);
  *device = (char*)host + distance;
  return is(OK);
}
hipError_t hipHostGetFlags(unsigned* flags, void* host) {
  std::map<char*, std::size_t>::iterator found;
  if (!flags || !holds(host, found)) return is(INVALID_VALUE);
  *flags = 3;
  return is(OK);
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  const auto found = capturing.find(stream);
  recorded[event] = {stream, found == capturing.end() ? nullptr : found->second};
  return is(OK);
}
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
  if (flags) return is(INVALID_VALUE);
  const auto [source, capture] = recorded[event];
  if (!capture) return is(OK);
  if (!capturing.count(stream)) capturing[stream] = capture;
  if (capturing[stream] != capture) return is(CAPTURE_UNMATCHED);
  if (stream != capture->origin) capture->open.insert(stream);
  capture->open.erase(source);
  return is(OK);
}
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
  if (!stream) return is(CAPTURE_UNSUPPORTED);
  if (int(mode) < 0 || int(mode) > 2) return is(INVALID_VALUE);
  if (capturing.count(stream)) return is(ILLEGAL_STATE);
  capturing[stream] = new Capture{stream, {}, {}};
  return is(OK);
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  const auto found = capturing.find(stream);
  if (found == capturing.end()) return is(ILLEGAL_STATE);
  Capture* capture = found->second;
  if (capture->origin != stream) return is(CAPTURE_UNMATCHED);
  for (auto one = capturing.begin(); one != capturing.end();)
    one = one->second == capture ? capturing.erase(one) : std::next(one);
  for (auto& [event, place] : recorded)
    if (place.second == capture) place.second = nullptr;
  const bool is_joined = capture->open.empty();
  if (is_joined) {
    auto* made = new Works(capture->works);
    graphs.insert(made);
    *graph = (hipGraph_t)made;
  }
  delete capture;
  return is(is_joined ? OK : CAPTURE_UNJOINED);
}
hipError_t hipGraphInstantiate(hipGraphExec_t* ready, hipGraph_t graph, hipGraphNode_t* failed, char* log,
                               std::size_t size) {
  if (!ready || !graphs.count((Works*)graph) || (!log && size) || failed) return is(INVALID_VALUE);
  auto* made = new Works(*(Works*)graph);
  execs.insert(made);
  *ready = (hipGraphExec_t)made;
  return is(OK);
}
hipError_t hipGraphDestroy(hipGraph_t graph) {
  if (!graphs.erase((Works*)graph)) return is(INVALID_VALUE);
  delete (Works*)graph;
  return is(OK);
}
hipError_t hipGraphLaunch(hipGraphExec_t ready, hipStream_t stream) {
  if (!execs.count((Works*)ready)) return is(INVALID_VALUE);
  if (capturing.count(stream)) return is(CAPTURE_UNSUPPORTED);
  ++launches;
  for (Work& work : *(Works*)ready) work();
  return is(OK);
}
hipError_t hipGraphExecDestroy(hipGraphExec_t ready) {
  if (!execs.erase((Works*)ready)) return is(INVALID_VALUE);
  delete (Works*)ready;
  return is(OK);
}
hipError_t hipGetLastError() { return is(OK); }
const char* hipGetErrorString(hipError_t status) {
  switch (int(status)) {
    case INVALID_VALUE: return "invalid argument";
    case INVALID_PITCH: return "invalid pitch argument";
    case ALREADY_REGISTERED: return "part or all of the requested memory range is already mapped";
    case CAPTURE_UNJOINED: return "a stream was not joined";
    default: return "another error";
  }
}
}
