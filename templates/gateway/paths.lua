-- The paths that the gateway has, each with its method, and the base URL for clients that use another path.
local paths = {}

local GOTTEN = { ["/"] = true, ["/v1/models"] = true, ["/health"] = true, ["/metrics"] = true }
-- Paths of Ollama's API (docs/api.md of ollama/ollama), which clients use that are set up for it.
local OLLAMA = {
  chat = true, create = true, embed = true, embeddings = true, generate = true, ps = true, pull = true, show = true,
  tags = true, version = true,
}
-- Anthropic's clients append /v1 themselves.
local WITH_VERSION = "^/v1/messages"
-- Bytes of a path that a message shows, and that is compared with ours; bytes of a Host header.
local SHOWN, HOST = 128, 256
local posted = {}

function paths.init(posts)
  for _, one in ipairs(posts) do posted["/v1/" .. one] = true end
end

-- "GET" or "POST"; nothing for a path that is not open. HEAD works wherever GET does.
function paths.method(path)
  if posted[path] then return "POST" end
  if GOTTEN[path] or path:find("^/v1/models/.") or path:find("^/metrics/[a-z0-9-]+$") then return "GET" end
end

-- Whether the path is written plainly. A model's name may be encoded: the router decodes it.
function paths.is_plain(path, uri)
  if path == uri then return true end
  return path:find("^/v1/models/[%w%%._~:@!$&'()*+,;=/-]+$") and uri:find("^/v1/models/.")
end

-- The open path that another one ends with: /v1/v1/chat/completions, /chat/completions, /api/v1/models/ and the like.
local function nearest(path)
  path = path:gsub("/+$", "")
  for at in path:gmatch("()/[^/]") do
    local rest = path:sub(at)
    for _, one in ipairs({ rest, "/v1" .. rest }) do
      if paths.method(one) then return one end
    end
  end
end

-- The address of this gateway as the client has it; empty where the client's Host header is not one.
function paths.address()
  local var = ngx.var
  local host = var.http_host or ""
  if #host > HOST or not (host:find("^[%w.-]+:?%d*$") or host:find("^%[[%x:.]+%]:?%d*$")) then return "" end
  -- a proxy of the operator's may have taken TLS off; only this client reads the answer
  local scheme = var.http_x_forwarded_proto == "https" and "https" or var.scheme
  return scheme .. "://" .. host
end

-- The message for a path that is not open.
function paths.describe_unknown(path)
  local shown = path:gsub("[^%w/._:@+-]", "?"):sub(1, SHOWN)
  local base = paths.address()
  if OLLAMA[path:match("^/api/(%l+)$") or ""] then
    return ("there is nothing at %s: Ollama's API is not served; set the client to an OpenAI-compatible API with the "
      .. "base URL %s/v1"):format(shown, base)
  end
  local near = nearest(shown)
  if not near or near:sub(1, 4) ~= "/v1/" then
    local at = near and ", but at " .. near or ""
    return ("there is nothing at %s%s; the base URL for OpenAI's clients is %s/v1"):format(shown, at, base)
  end
  local version = near:find(WITH_VERSION) and "" or "/v1"
  return ("there is nothing at %s, but at %s: set the client's base URL to %s%s"):format(shown, near, base, version)
end

return paths
