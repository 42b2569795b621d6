# The proxy, as compose.generated.yml and Kubernetes run it (docs/deployment.md):
#
#   docker build -t clawdapus/cllama:0.1.0 .
#
# Nothing of it needs root, a capability or a file system that it can write to, and any user may run it: what is written is
# below /claw/history and /claw/state, which volumes take their mode from, and /tmp.

FROM python:3.13-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=/build/constraints.txt
WORKDIR /build
COPY . .
RUN python -m venv /opt/claw && /opt/claw/bin/pip install '.[otel,redis]' 'uv>=0.13'

# The wrapper of a stdio MCP server (docs/mcp.md), with the launchers of PyPI's and npm's servers, uvx and npx:
#
#   docker build --target mcp-stdio -t clawdapus/claw-mcp-stdio:0.1.0 .
#
# What a launcher downloads is below HOME; an image of yours that is FROM this one may have its server installed instead.

FROM node:24-slim AS node

FROM python:3.13-slim AS mcp-stdio
LABEL org.opencontainers.image.title="claw-mcp-stdio" \
      org.opencontainers.image.description="A stdio MCP server, served over HTTP" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT AND Apache-2.0"
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libstdc++6 \
 && rm -rf /var/lib/apt/lists/* \
 && install --directory --mode=1777 /claw/home
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /usr/local/lib/node_modules/npm /usr/local/lib/node_modules/npm
RUN ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx \
 && ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
COPY --from=build /opt/claw /opt/claw
ENV PATH=/opt/claw/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HOME=/claw/home LISTEN_ADDR=:8080
WORKDIR /claw/home
USER 52110:52110
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health', timeout=4).close()"]
ENTRYPOINT ["claw", "mcp-stdio"]

# The tools host (docs/tools-host.md): files, commands, memory and the web for agents:
#
#   docker build --target tools-host -t clawdapus/claw-tools:0.1.0 .
#
# Commands see /usr and the workspace, and no network unless the pod allows it: git, Python and the system's own programs. What
# else they shall have an image of yours that is FROM this one installs.

FROM python:3.13-slim AS tools-host
LABEL org.opencontainers.image.title="claw-tools" \
      org.opencontainers.image.description="Contained tools for agents: files, commands, memory, the web" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT AND Apache-2.0"
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends git \
 && rm -rf /var/lib/apt/lists/* \
 && install --directory --mode=1777 /claw/workspaces
COPY --from=build /opt/claw /opt/claw
ENV PATH=/opt/claw/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /claw
USER 52110:52110
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health', timeout=4).close()"]
ENTRYPOINT ["claw", "tools", "serve", "--config", "/claw/tools/toolhost.yml"]

FROM python:3.13-slim
LABEL org.opencontainers.image.title="cllama" \
      org.opencontainers.image.description="The proxy of a clawdapus pod: mitmdump, the mediator, and the claw command" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT AND Apache-2.0"
# nft sets the redirect of agents that do not know of their proxy; it is the distribution's, and has its security fixes.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends nftables \
 && rm -rf /var/lib/apt/lists/* \
 && install --directory --mode=1777 /claw/history /claw/state
COPY --from=build /opt/claw /opt/claw
COPY addons /claw/addons
# The proxy's own default is loopback, which nobody reaches from outside the container.
ENV PATH=/opt/claw/bin:$PATH PYTHONDONTWRITEBYTECODE=1 LISTEN_ADDR=:8080 CLAW_PROXY_ADDR=:8082
WORKDIR /claw
USER 52110:52110
EXPOSE 8080 8082 8083
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health', timeout=4).close()"]
CMD ["mitmdump", "-s", "addons/cllama.py", "--set", "confdir=/tmp/mitmproxy"]
