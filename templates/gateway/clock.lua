-- Seconds that only go forward, of the clock that the router has, too (time.monotonic): the host's other one may be set.
local ffi = require("ffi")

ffi.cdef([[
typedef struct { long seconds; long nanoseconds; } rw_time;
int clock_gettime(int clock, rw_time *time);
]])
-- clock_gettime(2), on Linux.
local CLOCK_MONOTONIC = 1
local time = ffi.new("rw_time")

local clock = {}

function clock.now()
  ffi.C.clock_gettime(CLOCK_MONOTONIC, time)
  return tonumber(time.seconds) + tonumber(time.nanoseconds) / 1e9
end

return clock
