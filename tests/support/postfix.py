"""Postfix on loopback in a temporary folder: it needs TLS and a password, and relays all mails to another server."""

import contextlib
import os
import shutil
import smtplib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import postgres
from tests.support.cluster import accepts_connections, end, find, until
from tests.support.mail_server import Certificate, make_certificate

USER, PASSWORD, MAX_SIZE = "bot@mail.example", "hush", 100_000

MAIN = """\
compatibility_level = 3.6
queue_directory = {folder}/spool
data_directory = {folder}/data
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = mail.example
mydestination =
relayhost = [127.0.0.1]:{relay_port}
message_size_limit = {max_size}
smtpd_tls_cert_file = {tls.certificate}
smtpd_tls_key_file = {tls.key}
smtpd_tls_auth_only = yes
smtpd_sasl_auth_enable = yes
cyrus_sasl_config_path = {folder}/sasl
smtpd_relay_restrictions = permit_sasl_authenticated, reject
smtpd_recipient_restrictions = reject_non_fqdn_recipient
"""

MASTER = """\
127.0.0.1:{starttls_port} inet n - n - - smtpd -o smtpd_tls_security_level=encrypt
127.0.0.1:{tls_port} inet n - n - - smtpd -o smtpd_tls_wrappermode=yes
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
smtp unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
anvil unix - - n - 1 anvil
tlsmgr unix - - n 1000? 1 tlsmgr
proxymap unix - - n - - proxymap
postlog unix-dgram n - n - 1 postlogd
"""

SASL = """\
pwcheck_method: auxprop
auxprop_plugin: sasldb
sasldb_path: {folder}/sasl/users
mech_list: PLAIN LOGIN
"""


class Postfix(NamedTuple):
    """A running Postfix."""

    tls_port: int
    starttls_port: int
    tls: Certificate


def is_ready(running: Postfix) -> bool:
    """Whether Postfix accepts mails: its greeting proves that it is Postfix that accepts connections."""
    with (
        contextlib.suppress(OSError, smtplib.SMTPException),
        smtplib.SMTP("127.0.0.1", running.starttls_port, timeout=10) as client,
    ):
        return client.noop()[0] == 250 and accepts_connections(running.tls_port)
    return False


@contextlib.contextmanager
def postfix(relay_port: int) -> Iterator[Postfix]:
    """Run Postfix until the end of the block. Without root, the test is skipped, or fails if CI is set."""
    program, saslpasswd = find("postfix", "postfix"), find("saslpasswd2", "sasl2-bin")
    if os.getuid():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("NOT TESTED: only root can start Postfix")
    folder = Path(tempfile.mkdtemp(prefix="cx-postfix-"))
    folder.chmod(0o755)
    try:
        for name in ("spool", "data", "sasl"):
            (folder / name).mkdir()
        running = Postfix(postgres.free_port(), postgres.free_port(), make_certificate(folder, "IP:127.0.0.1"))
        values = {"folder": folder, "relay_port": relay_port, "max_size": MAX_SIZE, **running._asdict()}
        (folder / "main.cf").write_text(MAIN.format(**values))
        (folder / "master.cf").write_text(MASTER.format(**values))
        (folder / "sasl/smtpd.conf").write_text(SASL.format(**values))
        user, _, realm = USER.partition("@")
        line = [saslpasswd, "-p", "-c", "-f", str(folder / "sasl/users"), "-u", realm, user]
        subprocess.run(line, input=PASSWORD.encode(), check=True)
        for name in ("data", "sasl/users"):
            shutil.chown(folder / name, "postfix")
        with (folder / "output").open("wb") as output:
            line = [program, "-c", str(folder), "start-fg"]
            process = subprocess.Popen(line, stdout=output, stderr=output, start_new_session=True)
        try:
            until(lambda: process.poll() is not None or is_ready(running))
            assert process.poll() is None, (folder / "output").read_text()
            yield running
        finally:
            # Its master process has a session of its own, which `end` does not reach.
            subprocess.run([program, "-c", str(folder), "stop"], capture_output=True)
            end(process)
    finally:
        time.sleep(0.1)  # for the child processes of Postfix
        shutil.rmtree(folder, ignore_errors=True)
