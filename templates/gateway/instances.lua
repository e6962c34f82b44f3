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

-- Whether it is neither stopped nor about to be.
function instances.is_there(name)
  return seat(name) ~= nil
end

function instances.is_ready(name)
  return instances.is_there(name) and not out(name)
end

-- Whether a rollout keeps gateways of other boxes away from this one, from before its change until after its gate.
function instances.is_box_out()
  return settings.box_out ~= nil and (opens(settings.box_out))
end

function instances.ready(model)
  local found = {}
  for _, name in ipairs(model.instances) do
    if instances.is_ready(name) then found[#found + 1] = name end
  end
  return found
end

-- The one with the fewest under way; where requests are to stay together, the one that comes first in an order that is
-- another for each conversation, and moves only those of an instance that is gone.
function instances.choose(model, sticky, tried)
  local best, least
  local ready = instances.ready(model)
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

-- Have the request that is under way go to this one; by which link.
function instances.aim(name)
  local var, remote = ngx.var, settings.remote[name]
  if remote then
    -- the name in its certificate has the place of a socket; the engine's key is its own
    var.rw_target, var.rw_socket, var.rw_authorization = remote.url, remote.certificate, ""
    return name
  end
  local key, link = settings.engine_keys[name], seat(name) or name
  var.rw_socket = settings.links .. "/" .. link
  var.rw_authorization = key and "Bearer " .. key or ""
  if next(settings.remote) then var.rw_target = "http://unix:" .. var.rw_socket .. ":" end
  return link
end

-- Whether an instance did not get the request: nginx has "-" for the time to connect of a connection that did not come
-- about, last in a list with those of the router.
function instances.is_unsent(times)
  return times ~= nil and times:match("[^ ,:]+$") == "-"
end

-- A request of the router's to an instance, whether it is out or not.
function instances.probe()
  if ngx.req.is_internal() then return end
  local name = ngx.var.uri:match("^/probe/(.+)$")
  if ngx.req.get_method() ~= "POST" or not settings.instances[name] then return answers.unknown() end
  instances.aim(name)
end

return instances
