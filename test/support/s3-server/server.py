"""OpenStack Swift with its S3 interface in one process, on the loopback: proxy, account, container and object server.

Arguments: the folder of its data. Standard input: JSON {"user", "account", "secret"}. Prints its port, and ends with its standard input.
"""
import json
import logging
import os
import sys

import eventlet

eventlet.monkey_patch(thread=False)
from eventlet import wsgi
from swift.common import constraints, storage_policy, utils

folder = sys.argv[1]
login = json.loads(sys.stdin.readline())
swift_conf = os.path.join(folder, "swift.conf")
with open(swift_conf, "w") as conf:
    conf.write("[swift-hash]\nswift_hash_path_suffix = test\n[storage-policy:0]\nname = one\ndefault = true\n")
utils.SWIFT_CONF_FILE = constraints.SWIFT_CONF_FILE = storage_policy.SWIFT_CONF_FILE = swift_conf
utils.HASH_PATH_SUFFIX = b"test"
storage_policy.reload_storage_policies()

from swift.account.server import AccountController
from swift.common.middleware import catch_errors, gatekeeper, slo, tempauth
from swift.common.middleware.s3api import s3api
from swift.common.ring import RingBuilder
from swift.container.server import ContainerController
from swift.obj.server import ObjectController
from swift.proxy.server import Application

logging.disable(logging.CRITICAL)
devices = os.path.join(folder, "devices")
os.makedirs(os.path.join(devices, "disk"))
common = {
    "devices": devices, "mount_check": "false", "swift_dir": folder, "log_level": "CRITICAL",
    "fsync": "false", "fallocate_reserve": "0", "disable_fallocate": "true", "bind_ip": "127.0.0.1",
}
sockets = {name: eventlet.listen(("127.0.0.1", 0)) for name in ("account", "container", "object", "proxy")}
for name in ("account", "container", "object"):
    builder = RingBuilder(2, 1, 0)
    port = sockets[name].getsockname()[1]
    builder.add_dev({
        "id": 0, "region": 1, "zone": 1, "weight": 1.0, "device": "disk",
        "ip": "127.0.0.1", "port": port, "replication_ip": "127.0.0.1", "replication_port": port,
    })
    builder.rebalance()
    builder.get_ring().save(os.path.join(folder, name + ".ring.gz"))


class Cache:
    """What the proxy asks of memcached, in its place."""

    def __init__(self):
        self.values = {}

    def get(self, key, *_, **__):
        return self.values.get(key)

    def set(self, key, value, *_, **__):
        self.values[key] = value

    def delete(self, key, *_, **__):
        self.values.pop(key, None)


def piped(application):
    """The order of proxy-server.conf-sample."""
    application = slo.filter_factory({})(application)
    key = "user_%s_%s" % (login["account"], login["user"])
    application = tempauth.filter_factory({key: login["secret"] + " .admin"})(application)
    application = s3api.filter_factory({
        "s3_acl": "no", "location": "us-east-1", "pipeline": "catch_errors gatekeeper s3api tempauth slo proxy-server",
        "auth_pipeline_check": "no", "min_segment_size": "5242880",
    })(application)
    cache = Cache()

    def with_cache(env, start_response):
        env["swift.cache"] = cache
        return application(env, start_response)

    return catch_errors.filter_factory({})(gatekeeper.filter_factory({})(with_cache))


logger = utils.get_logger({"log_level": "CRITICAL"}, log_route="test")
applications = {
    "account": AccountController(common, logger),
    "container": ContainerController(common, logger),
    "object": ObjectController(common, logger),
    "proxy": piped(Application(dict(common, account_autocreate="true", node_timeout="20"), logger=logger)),
}
quiet = open(os.devnull, "w")
for name, application in applications.items():
    eventlet.spawn(wsgi.server, sockets[name], application, quiet, debug=False)
print(sockets["proxy"].getsockname()[1], flush=True)
eventlet.hubs.trampoline(sys.stdin.fileno(), read=True)
