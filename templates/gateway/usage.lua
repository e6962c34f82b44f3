-- Tokens of finished requests by day (UTC), key and model. All processes share the counts; a file for each day outlives
-- them. The limits in tokens per key use them, too.
local clock = require("clock")
local ffi = require("ffi")
local settings = require("settings")
local shared = ngx.shared.rigwright_usage

local usage = {}

ffi.cdef("int creat(const char *path, unsigned int mode); int close(int file);")
-- The service's umask leaves new files of Lua's writable for the group.
local MODE = tonumber("640", 8)

local FIELDS = { "requests", "input", "output", "cached", "unknown" }
local ROW = "^(%S+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+)$"
-- Requests of listeners without keys; no key is called so.
local NO_KEY = "-"
-- A file that was not written whole has another last line.
local END = "end"
local MOST_DIGITS = 15
-- Seconds between two writings, and of a part of the minute that a limit is for.
local EVERY, SLOT = 1, 10
local SLOTS = 60 / SLOT + 1
local DAY = 86400
-- Days that a file stays. Those of a box that was off for longer than `SWEPT` days stay for good.
local KEPT, SWEPT = 400, 60

local function day_of(seconds)
  return os.date("!%Y-%m-%d", seconds)
end

local function path(day)
  return settings.usage .. day
end

-- Unlike `incr` with a first value, this never drops another count where memory is short.
local function add(name, by, seconds)
  if by == 0 then return true end
  if shared:incr(name, by) then return true end
  shared:safe_add(name, 0, seconds or 0)
  return shared:incr(name, by) ~= nil
end

local function row_name(day, key, model, field)
  return ("row %s %s %s %s"):format(day, key, model, field)
end

-- The rows of a day's file; none where the file is missing or cut off.
local function read(day)
  local rows, last = {}, nil
  local file = io.open(path(day), "rb")
  if not file then return rows end
  for line in file:lines() do
    last = line
    local row = { line:match(ROW) }
    local good = #row == #FIELDS + 2
    for at = 3, #row do good = good and #row[at] <= MOST_DIGITS end
    if good then rows[#rows + 1] = row end
  end
  file:close()
  return last == END and rows or {}
end

local function restore(day)
  shared:set("loaded " .. day, true)
  for _, row in ipairs(read(day)) do
    for at, field in ipairs(FIELDS) do add(row_name(day, row[1], row[2], field), tonumber(row[at + 2])) end
  end
end

-- Before anything is counted: this month's tokens of each key. A reload has them already.
function usage.init()
  if not settings.usage or shared:get("begun") then return end
  local now = ngx.time()
  local today = day_of(now)
  restore(today)
  for number = 1, tonumber(today:sub(9)) do
    local day = ("%s-%02d"):format(today:sub(1, 7), number)
    for _, row in ipairs(read(day)) do
      local tokens = tonumber(row[4]) + tonumber(row[5])
      add("month " .. day:sub(1, 7) .. " " .. row[1], tokens)
      if day == today then add("day " .. day .. " " .. row[1], tokens) end
    end
  end
  shared:set("begun", true)
end

-- All rows in memory: day -> "key model" -> field -> number.
local function rows()
  local found = {}
  for _, name in ipairs(shared:get_keys(0)) do
    local day, row, field = name:match("^row (%S+) (%S+ %S+) (%l+)$")
    if day then
      found[day] = found[day] or {}
      found[day][row] = found[day][row] or {}
      found[day][row][field] = shared:get(name)
    end
  end
  return found
end

-- The names in a table, in order.
function usage.sorted(values)
  local names = {}
  for name in pairs(values) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function write(day, found)
  local lines = {}
  for _, row in ipairs(usage.sorted(found)) do
    local line = { row }
    for _, field in ipairs(FIELDS) do line[#line + 1] = ("%d"):format(found[row][field] or 0) end
    lines[#lines + 1] = table.concat(line, " ")
  end
  lines[#lines + 1] = END .. "\n"
  local new = path(day) .. ".new"
  ffi.C.close(ffi.C.creat(new, MODE))
  local file, why = io.open(new, "wb")
  local written = file and file:write(table.concat(lines, "\n"))
  if file then written = file:close() and written end
  if not written or not os.rename(new, path(day)) then
    ngx.log(ngx.ALERT, "tokens of ", day, " are not in their file: ", why or "it cannot be written")
    return false
  end
  return true
end

-- Forget what is of other days and months, once it is in its file.
local function forget(today)
  for _, name in ipairs(shared:get_keys(0)) do
    local kind, day = name:match("^(%l+) (%d+%-%d+%-?%d*)")
    local past = day and (kind == "month" and day ~= today:sub(1, 7) or kind ~= "month" and day ~= today)
    if past and not shared:get("dirty " .. day) then shared:delete(name) end
  end
  for days = KEPT, KEPT + SWEPT do os.remove(path(day_of(ngx.time() - days * DAY))) end
end

-- Write the days that have changed. One process at a time does.
function usage.flush()
  if not settings.usage then return end
  if not shared:add("writing", true, 10) then
    shared:set("changed", true)
    return
  end
  local dirty = {}
  for _, name in ipairs(shared:get_keys(0)) do
    local day = name:match("^dirty (.+)$")
    if day then dirty[#dirty + 1] = day end
  end
  for _, day in ipairs(dirty) do
    if not shared:get("loaded " .. day) then restore(day) end
    shared:delete("dirty " .. day)
    if not write(day, rows()[day] or {}) then shared:set("dirty " .. day, true) end
  end
  local today = day_of(ngx.time())
  if shared:get("swept") ~= today then
    shared:set("swept", today)
    forget(today)
  end
  shared:delete("writing")
end

-- In each process: the first one writes.
function usage.begin()
  if not settings.usage or ngx.worker.id() ~= 0 then return end
  local function turn()
    if shared:get("changed") then
      shared:delete("changed")
      usage.flush()
    end
  end
  assert(ngx.timer.every(EVERY, turn))
end

-- Count a request that an instance has answered. `charged` are the tokens for limits: those that are known, and for a
-- stream that ended early at least one for each of its events.
function usage.count(key, model, counted, charged)
  local day = day_of(ngx.time())
  key = key ~= "" and key or NO_KEY
  local kept = true
  for _, field in ipairs(FIELDS) do
    kept = add(row_name(day, key, model, field), counted[field]) and kept
    kept = add(row_name("total", key, model, field), counted[field]) and kept
  end
  if key ~= NO_KEY then
    kept = add("day " .. day .. " " .. key, charged) and kept
    kept = add("month " .. day:sub(1, 7) .. " " .. key, charged) and kept
    kept = add(("slot %d %s"):format(clock.now() / SLOT, key), charged, SLOT * (SLOTS + 1)) and kept
  end
  if not kept then ngx.log(ngx.ALERT, "the memory for counts of tokens is full") end
  shared:set("dirty " .. day, true)
  shared:set("changed", true)
end

-- Seconds until a key has used less than its limit in the last minute; nothing if it has.
local function wait_of_minute(key, limit)
  local now = clock.now()
  local slot, used, by_slot = math.floor(now / SLOT), 0, {}
  for at = slot - SLOTS + 1, slot do
    by_slot[at] = shared:get(("slot %d %s"):format(at, key)) or 0
    used = used + by_slot[at]
  end
  if used < limit then return nil end
  for at = slot - SLOTS + 1, slot do
    used = used - by_slot[at]
    if used < limit then return (at + SLOTS) * SLOT - now end
  end
end

local function next_month(now)
  local date = os.date("!*t", now)
  local left = DAY - now % DAY
  repeat
    local day = os.date("!*t", now + left)
    if day.month ~= date.month then return left end
    left = left + DAY
  until false
end

-- Why a key may not ask now, and in how many seconds it may; nothing if it may.
function usage.refusal(key, limits)
  local minute, day, month = (limits or ""):match("^(%S+) (%S+) (%S+)$")
  if not minute then return nil end
  local now = ngx.time()
  local today = day_of(now)
  local spans = {
    { tonumber(month), "month", "month " .. today:sub(1, 7) .. " ", function() return next_month(now) end },
    { tonumber(day), "day", "day " .. today .. " ", function() return DAY - now % DAY end },
  }
  for _, one in ipairs(spans) do
    local limit, span, prefix, wait = unpack(one)
    if limit and (shared:get(prefix .. key) or 0) >= limit then
      return ("this key has used its %.0f tokens of this %s (UTC)"):format(limit, span), math.ceil(wait())
    end
  end
  local limit = tonumber(minute)
  local wait = limit and wait_of_minute(key, limit)
  if wait then
    return ("this key has used its %.0f tokens of a minute"):format(limit), math.max(1, math.ceil(wait))
  end
end

-- Key, model, kind of tokens and their number since nginx's start.
function usage.totals()
  local found, lines = rows().total or {}, {}
  for _, row in ipairs(usage.sorted(found)) do
    local key, model = row:match("^(%S+) (%S+)$")
    lines[#lines + 1] = { key == NO_KEY and "" or key, model, found[row] }
  end
  return lines
end

return usage
