"""The gateway's Lua without nginx: its modules in LuaJIT, with a stand-in of what nginx gives them."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import lupa.luajit21

from rigwright.project_root import ROOT

# `ngx` as far as the decisions use it: headers answer to any case, a shared dictionary counts.
_STAND_IN = """
local folder, json, md5 = ...
package.path = folder .. "/?.lua"
local function without_case(values)
  return setmetatable({}, {
    __index = function(_, name) return values[name:lower()] end,
    __newindex = function(_, name, value) values[name:lower()] = value end,
  })
end
local sent = {}
local function dictionary(kept)
  return {
    get = function(_, name) return kept[name] end,
    set = function(_, name, value) kept[name] = value end,
    add = function(_, name, value)
      if kept[name] ~= nil then return nil, "exists" end
      kept[name] = value
      return true
    end,
    delete = function(_, name) kept[name] = nil end,
    safe_add = function(self, name, value) return self:add(name, value) end,
    incr = function(_, name, by, first)
      local before = kept[name] or first
      if not before then return nil, "not found" end
      kept[name] = before + by
      return kept[name]
    end,
    get_keys = function()
      local names = {}
      for name in pairs(kept) do names[#names + 1] = name end
      return names
    end,
  }
end
ngx = {
  var = { binary_remote_addr = "\\10\\0\\0\\1", remote_port = "9" }, arg = {}, is_subrequest = false,
  status = 200, header = without_case(sent), HTTP_OK = 200, ALERT = 1,
  resp = { get_headers = function()
    local copy = {}
    for name, value in pairs(sent) do copy[name] = value end
    return copy
  end },
  shared = {},
  time = function() return ngx.now_is end,
  now_is = 1795910400,
  log = function(_, ...) ngx.logged = table.concat({ ... }) end,
  worker = { pid = function() return 7 end, id = function() return 0 end },
  md5_bin = md5,
  print = function(text) ngx.printed = text end,
  exit = function(status) ngx.exited = status end,
}
ngx.shared.rigwright, ngx.shared.rigwright_usage = dictionary({}), dictionary({})
package.preload["cjson"] = function()
  return { null = json.null, decode = json.decode, encode = function(value)
    if type(value) ~= "table" then return json.encode(value) end
    local error = value.error
    return json.error(value.type or "", error.message, error.type, error.code)
  end }
end
package.preload["cjson.safe"] = package.preload["cjson"]
package.preload["ngx.semaphore"] = function() return {} end
require("settings").origins = {}
require("settings").instances = {}
return require
"""


class NginxLua:
    """One process of nginx."""

    def __init__(self) -> None:
        # a byte is a character: Lua's texts are bytes
        self._lua = lupa.luajit21.LuaRuntime(encoding="latin-1", unpack_returned_tuples=True)
        table = self._lua.table_from(
            {"null": "null", "encode": json.dumps, "decode": self._decode_json, "error": self._render_error}
        )
        made = self._lua.eval("function(text) return assert(loadstring(text)) end")(_STAND_IN)
        self.require = made(
            str(ROOT / "templates/gateway"), table, lambda text: hashlib.md5(text.encode("latin-1")).digest()
        )

    @staticmethod
    def _render_error(whole: str, message: str, kind: str, code: str) -> str:
        if whole:
            return json.dumps({"type": whole, "error": {"type": kind, "message": message}})
        return json.dumps(
            {"error": {"message": message, "type": kind, "param": None, "code": None if code == "null" else code}}
        )

    def _decode_json(self, text: str) -> Any:
        try:
            value = json.loads(text)
        except ValueError:
            return None
        return self._lua.table_from(value, recursive=True) if isinstance(value, dict) else value

    @property
    def collector(self) -> Any:
        """`collectgarbage`: its `count` is what all values take, in KiB."""
        return self._lua.globals().collectgarbage

    @property
    def ngx(self) -> Any:
        """nginx's interface for Lua."""
        return self._lua.globals().ngx

    def table(self, values: Any) -> Any:
        """A list or a dictionary as Lua has it."""
        return self._lua.table_from(values)

    def as_dictionary(self, values: Any) -> dict[Any, Any]:
        """A table of Lua's."""
        return dict(values.items())

    def filter_answer(
        self, status: int, headers: Mapping[str, str], engine: str | None = None
    ) -> tuple[int, dict[str, str]]:
        """Status and headers that a client gets.

        Args:
            status: of the answer before Lua has seen it.
            headers: likewise, as nginx has them.
            engine: the Content-Type of an engine's answer, which nginx hides; None: it is not an engine's.
        """
        self.ngx.status = status
        for name, value in headers.items():
            self.ngx.header[name] = value
        self.ngx.var.rw_socket = "" if engine is None else "/run/links/chat"
        self.ngx.var.upstream_http_content_type = engine
        self.require("answers").headers()
        return self.ngx.status, self.as_dictionary(self.ngx.resp.get_headers(0))
