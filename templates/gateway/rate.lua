-- Whether a body comes fast enough.
local rate = {}

-- Seconds, and bytes a second that must come in each such time: as mod_reqtimeout of Apache has it by default
-- (`body=20,MinRate=500`); GPRS, the slowest uplink in use, carries twice that. A rate over all of the body would let a
-- client send most of it at once, and then keep it for hours.
rate.WINDOW, rate.LEAST = 20, 500
-- Seconds for all of a body: 64 MiB in it are 110 kB/s.
rate.LONGEST = 600

function rate.begin(now)
  return { first = now, since = now, bytes = 0 }
end

-- Whether a body is too slow, of which that many bytes have come; looks must be more frequent than windows.
function rate.is_slow(state, now, bytes)
  if now - state.first > rate.LONGEST then return true end
  if now - state.since < rate.WINDOW then return false end
  local slow = bytes - state.bytes < rate.WINDOW * rate.LEAST
  state.since, state.bytes = now, bytes
  return slow
end

return rate
