-- Which instances there are to answer, and which one does.
local answers = require("answers")
local counts = require("counts")
local ffi = require("ffi")
local settings = require("settings")

local instances = {}

ffi.cdef([[
int open(const char *path, int flags, ...);
int close(int file);
ssize_t readlink(const char *path, char *target, size_t size);
]])
local LONGEST = 4096
local target = ffi.new("char[?]", LONGEST)
-- What opening a socket as a file says (errno(3)); where there is none it is another number.
local ENXIO = 6
-- O_NONBLOCK and O_CLOEXEC (open(2), on x86 and Arm): who has an engine can make a FIFO of its socket, and opening that
-- otherwise waits until somebody writes, with all that this process has under way.
local AT_ONCE = 0x800 + 0x80000
-- How an instance stands: in the rotation, or asked only where no other one of its model can be.
local IN, LAST = "in", "last"
-- What follows the name of one that runs beside the one in whose place it is to come: as long as it is there, it is the
-- one that is asked.
local BESIDE = ".beside"
local turn = 0

-- Whether a file can be opened; else the number of why not.
local function opens(path)
  local file = ffi.C.open(path, AT_ONCE)
  if file < 0 then return false, ffi.errno() end
  ffi.C.close(file)
  return true
end

-- Where a link leads to; nothing for what is none.
local function target_of(path)
  local length = ffi.C.readlink(path, target, LONGEST)
  return length > 0 and length < LONGEST and ffi.string(target, length) or nil
end

-- Whether its link leads to a socket: readiness makes it after a completion, its stop removes it. What it leads to is the
-- engine's, who could put a link to another one's there, and have that one given its requests and its key.
local function linked(name)
  local path = target_of(settings.links .. "/" .. name)
  if not path or target_of(path) then return false end
  local _, number = opens(path)
  return number == ENXIO
end

-- A name with a slash is one of another box.
local function out(name)
  return (opens(settings.out .. "/" .. (name:gsub("/", "_"))))
end

-- The link that leads to it now; of one of another box, its name.
local function seat(name)
  if settings.remote[name] then return not counts.leaving(name) and name or nil end
  for _, one in ipairs({ name .. BESIDE, name }) do
    if linked(one) and not counts.leaving(one) then return one end
  end
end

-- Whether root's service keeps an instance of this box out (roles/gateway/host/rotation): for a fault after which it is
-- of no use, or, with ".last", for one with which it may answer all the same.
local function kept_out(name, ending)
  return (opens(settings.rotation .. "/" .. name .. (ending or "")))
end

-- Nothing for one that gets no request at all. Another box that has refused one may keep its instance out likewise, and
-- takes what says that there is no other.
function instances.standing(name)
  if out(name) then return nil end
  if settings.remote[name] then return seat(name) and IN or counts.refused(name) and LAST or nil end
  if not seat(name) or kept_out(name) then return nil end
  return kept_out(name, ".last") and LAST or IN
end

-- Whether starting it would bring the model an instance: it is not out for a fault, and not one that runs and is silent.
function instances.may_wake(name)
  return not kept_out(name) and not (out(name) and seat(name))
end

function instances.is_ready(name)
  return instances.standing(name) == IN
end

-- Whether a rollout keeps gateways of other boxes away from this one, from before its change until after its gate.
function instances.is_box_out()
  return settings.box_out ~= nil and (opens(settings.box_out))
end

-- Those in the rotation, and those to be asked where none of them can be.
function instances.ready(model)
  local found, last = {}, {}
  for _, name in ipairs(model.instances) do
    local standing = instances.standing(name)
    local list = standing == IN and found or standing == LAST and last
    if list then list[#list + 1] = name end
  end
  return found, last
end

function instances.number(model)
  local found, last = instances.ready(model)
  return #found > 0 and #found or #last
end

-- The one with the fewest under way; where requests are to stay together, the one that comes first in an order that is
-- another for each conversation, and moves only those of an instance that is gone.
local function choose(ready, sticky, tried)
  local best, least
  turn = turn + 1
  for at = 1, #ready do
    local name = ready[(at + turn) % #ready + 1]
    if not tried[name] then
      local weight = sticky ~= "" and ngx.crc32_long(sticky .. " " .. name) or counts.get("instance " .. name)
      if not best or weight < least then best, least = name, weight end
    end
  end
  return best
end

-- An instance that was not tried, and whether only want of another has led to it.
function instances.choose(model, sticky, tried)
  local found, last = instances.ready(model)
  local name = choose(found, sticky, tried)
  if name then return name, false end
  return choose(last, sticky, tried), true
end

-- Have the request that is under way go to this one; by which link.
function instances.aim(name)
  local var, remote = ngx.var, settings.remote[name]
  if remote then
    -- the name in its certificate has the place of a socket; the engine's key is its own
    var.rw_target, var.rw_socket, var.rw_authorization = remote.url, remote.certificate, ""
    var.rw_connection = ""
    return name
  end
  local key, link = settings.engine_keys[name], seat(name) or name
  var.rw_socket = settings.links .. "/" .. link
  var.rw_authorization = key and "Bearer " .. key or ""
  if next(settings.remote) then
    var.rw_connection = "close"
    var.rw_target = "http://unix:" .. var.rw_socket .. ":"
  end
  return link
end

-- Whether an instance did not get the request: nginx has "-" for the time to connect of a connection that did not come
-- about, last in a list with those of the router.
function instances.is_unsent(times)
  return times ~= nil and times:match("[^ ,:]+$") == "-"
end

-- Whether a request that an instance has not answered may go to another one: it did not get it, or it ends because it
-- is being stopped. One that has had the request until its time was over would be two.
function instances.may_go_on(name)
  local var = ngx.var
  if instances.is_unsent(var.upstream_connect_time) then return true end
  return not instances.is_late(var.upstream_status) and counts.leaving(name) ~= nil
end

-- Whether the time for an answer was over, by the last of nginx's statuses.
function instances.is_late(statuses)
  return statuses ~= nil and statuses:match("[^ ,:]+$") == "504"
end

-- A request of the router's to an instance, whether it is out or not.
function instances.probe()
  if ngx.req.is_internal() then return end
  local name = ngx.var.uri:match("^/probe/(.+)$")
  if ngx.req.get_method() ~= "POST" or not settings.instances[name] then return answers.unknown() end
  instances.aim(name)
  if settings.remote[name] then ngx.var.rw_target = (ngx.var.rw_target:gsub("^https://fleet%-", "https://probe-", 1)) end
end

return instances
