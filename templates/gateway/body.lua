-- A request's body: where it names the model, and how that becomes another name.
local cjson = require("cjson.safe")

local body = {}

-- Bytes that are copied before others have their turn: fifty microseconds.
local SLICE = 65536

-- Where the model's name is, as the router says it, and which it is.
function body.span(span, quoted)
  local first, last = (span or ""):match("^(%d+)-(%d+)$")
  if not first then return nil end
  return { tonumber(first), tonumber(last) }, cjson.decode(quoted or "")
end

local function copy(file, bytes)
  while bytes > 0 do
    local read = file:read(math.min(SLICE, bytes))
    if not read then return end
    ngx.req.append_body(read)
    bytes = bytes - #read
    ngx.sleep(0)
  end
end

-- Put a text where these bytes are; where it ends then.
function body.splice(first, last, text)
  local data = ngx.req.get_body_data()
  if data then
    ngx.req.set_body_data(data:sub(1, first) .. text .. data:sub(last + 1))
    return first + #text
  end
  -- its file is removed as the new one begins, but not for who has it open
  local file = assert(io.open(ngx.req.get_body_file(), "rb"))
  ngx.req.init_body(SLICE)
  copy(file, first)
  ngx.req.append_body(text)
  file:seek("set", last)
  copy(file, math.huge)
  ngx.req.finish_body()
  file:close()
  return first + #text
end

-- Put a text, as JSON, where these bytes are, and after it the member that salts the prompt, if any; where it ends then.
function body.replace(first, last, name, salt)
  local text = cjson.encode(name)
  if salt then text = text .. ',"cache_salt":' .. cjson.encode(salt) end
  return body.splice(first, last, text)
end

return body
