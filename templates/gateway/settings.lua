-- What router and nginx read alike, and the engines' own keys.
local cjson = require("cjson.safe")

local settings = { remote = {}, lent = {}, fronts = {} }

local function text(path)
  local file, why = io.open(path, "rb")
  if not file then return nil, why end
  local read = file:read("*a")
  file:close()
  return read
end

local function set(list)
  local found = {}
  for _, one in ipairs(list) do found[one] = true end
  return found
end

-- Raises an error where they cannot be read. The keys may be missing: where a configuration is only tried there are none.
function settings.read(path)
  local found = assert(cjson.decode(assert(text(path))), path .. " is not JSON")
  settings.models = found.models
  settings.links, settings.out, settings.digest = found.links, found.out, found.digest
  settings.rotation = found.rotation
  settings.usage, settings.box_out = found.usage, found.box_out
  -- of instances on demand: the socket of the service that starts them, how long a request waits, and listeners whose
  -- clients may have others stopped; nothing where there are none
  settings.wake = found.wake
  settings.origins = set(found.origins)
  settings.instances, settings.sticky_headers, settings.names = {}, {}, {}
  -- instances of other boxes, and those of this one that others use, each with the names of those gateways
  -- -> requests of each that may be under way
  settings.remote, settings.lent, settings.fronts = found.remote or {}, {}, found.fronts or {}
  for name, fronts in pairs(found.lent or {}) do settings.lent[name], settings.instances[name] = set(fronts), true end
  for name, listener in pairs(found.listeners) do
    if listener.names and #listener.names > 0 then settings.names[name] = listener.names end
  end
  for _, model in pairs(found.models) do
    for _, name in ipairs(model.instances) do settings.instances[name] = true end
    local header = model.sticky:match("^header:(.+)$")
    if header then settings.sticky_headers[header:lower()] = true end
  end
  local keys = ngx.config.prefix() .. "engine-keys.json"
  local kept, why = text(keys)
  if not kept then ngx.log(ngx.ERR, "engines are asked without their keys: ", why) end
  settings.engine_keys = assert(cjson.decode(kept or "{}"), keys .. " is not JSON")
end

return settings
