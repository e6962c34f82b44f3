"""Classes of the fingerprint: access to a host, and programs that root starts."""

from __future__ import annotations

from checks.survey.fingerprint_class import EntryClass, words

ACCESS: tuple[EntryClass, ...] = (
    EntryClass(
        "accounts",
        "accounts: a row per user, with the state of its password",
        readers=("accounts",),
        secret=True,
    ),
    EntryClass("groups", "groups: a row per group, with members and the state of its password", readers=("groups",)),
    EntryClass(
        "account_files",
        "defaults of accounts, ranges of subordinate ids, lists of shells and terminals",
        words(
            """
            /etc/login.defs /etc/adduser.conf /etc/deluser.conf /etc/default/useradd /etc/shells /etc/subuid
            /etc/subgid /etc/securetty /etc/nologin /run/nologin /etc/at.allow /etc/at.deny /etc/cron.allow
            /etc/cron.deny /etc/ftpusers /etc/netgroup /etc/user.conf /etc/userdb/** /run/userdb/**
            /usr/lib/userdb/** /var/lib/AccountsService/** /var/lib/systemd/home/** /etc/libuser.conf
            /etc/pwquality.conf
            """
        ),
    ),
    EntryClass(
        "account_database_files",
        "modes, owners and access lists of the files of accounts and passwords",
        readers=("account_database_files",),
        secret=True,
    ),
    EntryClass(
        "sudo",
        "rules of sudo and doas",
        words(
            """
            /etc/sudoers /etc/sudoers.d/** /etc/sudo.conf /etc/sudo_logsrvd.conf /etc/sudoers.dist
            /etc/sudo-ldap.conf /etc/doas.conf /etc/doas.d/** /usr/local/etc/sudoers* /etc/super.tab
            /usr/local/etc/sudoers.d/** /usr/local/etc/doas.conf /usr/lib/sudo/** /usr/libexec/sudo/**
            """
        ),
        private_copies=True,
    ),
    EntryClass(
        "pam",
        "PAM services, modules and their settings",
        words(
            """
            /etc/pam.d/** /etc/pam.conf /usr/lib/pam.d/** /etc/security/** /usr/lib/*/security/**
            /usr/lib/security/** /usr/local/lib/security/** /usr/share/pam-configs/** /usr/share/pam/**
            /root/.google_authenticator /home/*/.google_authenticator /home/*/.pam_environment /etc/krb5.conf
            /etc/krb5.keytab /etc/krb5.conf.d/** /root/.k5login /home/*/.k5login /etc/duo/** /etc/u2f_mappings
            /home/*/.config/Yubico/** /root/.config/Yubico/**
            """
        ),
    ),
    EntryClass(
        "name_service",
        "sources of accounts, groups and host names",
        words(
            """
            /etc/nsswitch.conf /usr/lib/*/libnss_* /etc/nscd.conf /etc/nslcd.conf /etc/sssd/** /etc/ldap/**
            /etc/ldap.conf /etc/libnss-* /etc/samba/smb.conf /etc/winbind* /etc/yp.conf /etc/default/nss
            /etc/host.conf /etc/gai.conf /etc/hosts /etc/resolv.conf
            """
        ),
    ),
    EntryClass(
        "sshd",
        "settings of the SSH server, and those in force",
        words(
            """
            /etc/ssh/sshd_config /etc/ssh/sshd_config.d/** /etc/ssh/sshrc /etc/ssh/moduli /etc/ssh/*.pub
            /etc/default/ssh /etc/ssh/shosts.equiv /etc/hosts.equiv /root/.shosts /root/.rhosts /root/.ssh/rc
            /home/*/.ssh/rc /root/.ssh/environment /home/*/.ssh/environment /etc/ssh/authorized_*
            /etc/ssh/authorized_*/** /etc/ssh/*principals*/** /etc/ssh/*ca* /etc/dropbear/** /etc/hosts.allow
            /etc/hosts.deny
            """
        ),
        readers=("sshd_settings",),
        private_copies=True,
    ),
    EntryClass(
        "sshd_keys",
        "the SSH server's private keys",
        ("/etc/ssh/ssh_host_*_key",),
        secret=True,
    ),
    EntryClass(
        "authorised_keys",
        "keys that log in, of every account",
        readers=("authorised_keys",),
    ),
    EntryClass(
        "ssh_client",
        "settings and known hosts of root's SSH client",
        words(
            """
            /etc/ssh/ssh_config /etc/ssh/ssh_config.d/** /etc/ssh/ssh_known_hosts /root/.ssh/config /root/.ssh/*.pub
            """
        ),
    ),
    EntryClass(
        "root_keys",
        "private keys and credentials of root",
        words(
            """
            /root/.ssh/id_* /root/.netrc
            """
        ),
        secret=True,
    ),
    EntryClass(
        "polkit",
        "rules, actions and authorities of polkit",
        words(
            """
            /etc/polkit-1/** /run/polkit-1/** /usr/share/polkit-1/** /usr/local/share/polkit-1/**
            /var/lib/polkit-1/** /usr/lib/polkit-1/**
            """
        ),
    ),
    EntryClass(
        "dbus",
        "policy and services of D-Bus",
        words(
            """
            /etc/dbus-1/** /run/dbus-1/** /usr/share/dbus-1/** /usr/local/share/dbus-1/** /usr/lib/dbus-1.0/**
            """
        ),
    ),
    EntryClass(
        "privileged_files",
        "files with setuid, setgid or capabilities",
        readers=("privileged_files",),
    ),
)

STARTED: tuple[EntryClass, ...] = (
    EntryClass(
        "units",
        "units, drop-ins, generators and enablement links of systemd, of the system and of users",
        words(
            """
            /etc/systemd/system/** /run/systemd/system/** /usr/lib/systemd/system/** /usr/local/lib/systemd/**
            /etc/systemd/system.control/** /run/systemd/system.control/** /run/systemd/transient/**
            /run/systemd/generator/** /run/systemd/generator.early/** /run/systemd/generator.late/**
            /etc/systemd/user/** /run/systemd/user/** /usr/lib/systemd/user/** /usr/share/systemd/**
            /usr/local/share/systemd/** /root/.config/systemd/** /home/*/.config/systemd/**
            /root/.local/share/systemd/** /home/*/.local/share/systemd/** /var/lib/systemd/linger/**
            /etc/systemd/system-generators/** /etc/systemd/user-generators/** /run/systemd/system-generators/**
            /run/systemd/user-generators/** /etc/systemd/system.attached/** /run/systemd/system.attached/**
            /var/lib/portables/** /etc/systemd/*-preset/** /run/systemd/*-preset/** /etc/systemd/nspawn/**
            /run/systemd/nspawn/** /var/lib/extensions/** /run/extensions/** /etc/extensions/** /var/lib/confexts/**
            /run/confexts/** /etc/systemd/*-generators/** /run/systemd/*-generators/** /run/user/*/systemd/user/**
            /run/user/*/systemd/user.control/** /etc/portables/** /run/portables/** /var/lib/machines/*
            """
        ),
    ),
    EntryClass(
        "systemd_programs",
        "systemd's own programs and generators, and programs that it runs at shutdown and sleep",
        words(
            """
            /usr/lib/systemd/** /etc/systemd/system-shutdown/** /etc/systemd/system-sleep/**
            """
        ),
    ),
    EntryClass(
        "systemd_settings",
        "settings of systemd's managers and services, their environment and credentials",
        words(
            """
            /etc/systemd/*.conf /etc/systemd/*.conf.d/** /run/systemd/*.conf /run/systemd/*.conf.d/**
            /usr/local/lib/systemd/*.conf.d/** /run/systemd/default-*
            """
        ),
        readers=("manager_environment",),
    ),
    EntryClass(
        "credentials",
        "credentials of systemd's services",
        words(
            """
            /etc/credstore/** /etc/credstore.encrypted/** /run/credstore/** /run/credstore.encrypted/**
            /usr/lib/credstore/** /run/credentials/@system/** /var/lib/systemd/credential.secret
            """
        ),
        secret=True,
    ),
    EntryClass(
        "init_scripts",
        "scripts that a boot starts",
        words(
            """
            /etc/init.d/** /etc/rc.local /etc/rc?.d/** /etc/rcS.d/** /etc/inittab /etc/init/** /etc/rc.d/**
            /etc/insserv*/** /etc/insserv.conf /etc/init.conf
            """
        ),
    ),
    EntryClass(
        "cron",
        "jobs of cron, anacron, at and incron",
        words(
            """
            /etc/crontab /etc/cron.d/** /etc/cron.hourly/** /etc/cron.daily/** /etc/cron.weekly/**
            /etc/cron.monthly/** /etc/cron.yearly/** /etc/anacrontab /var/spool/cron/** /var/spool/at/**
            /var/spool/incron/** /etc/incron* /etc/incron.d/** /etc/fcron* /var/spool/fcron/** /etc/default/cron
            /etc/default/anacron
            """
        ),
        private_copies=True,
    ),
    EntryClass(
        "udev",
        "rules, programs and hardware tables of udev",
        words(
            """
            /etc/udev/** /run/udev/rules.d/** /usr/lib/udev/** /usr/local/lib/udev/** /run/udev/static_node-tags/**
            """
        ),
    ),
    EntryClass(
        "declared_files",
        "files, users and formats that systemd makes at a boot",
        words(
            """
            /etc/tmpfiles.d/** /run/tmpfiles.d/** /usr/lib/tmpfiles.d/** /usr/local/lib/tmpfiles.d/**
            /etc/sysusers.d/** /run/sysusers.d/** /usr/lib/sysusers.d/** /usr/local/lib/sysusers.d/**
            /etc/binfmt.d/** /run/binfmt.d/** /usr/lib/binfmt.d/** /usr/local/lib/binfmt.d/**
            /usr/share/user-tmpfiles.d/**
            """
        ),
        readers=("binary_formats",),
    ),
    EntryClass(
        "logrotate",
        "logrotate's settings and scripts",
        words(
            """
            /etc/logrotate.conf /etc/logrotate.d/**
            """
        ),
    ),
    EntryClass(
        "shell_start",
        "environment and start files of root's and users' shells",
        words(
            """
            /etc/environment /etc/profile /etc/profile.d/** /etc/bash.* /etc/bashrc /etc/bash_*
            /etc/bash_completion.d/** /etc/zsh/** /etc/zprofile /etc/zshenv /etc/csh* /etc/fish/** /etc/inputrc
            /etc/locale.conf /etc/default/locale /usr/share/bash-completion/** /root/.bash*
            /usr/local/share/bash-completion/** /root/.local/share/bash-completion/**
            /root/.profile /root/.zsh* /root/.zprofile /root/.zlog* /root/.login* /root/.cshrc /root/.tcshrc
            /root/.kshrc /root/.inputrc /root/.config/fish/** /root/.screenrc /root/.tmux.conf /root/.config/tmux/**
            /root/.vimrc /root/.vim/** /root/.config/nvim/** /root/.exrc /root/.nanorc /root/.emacs* /root/.less*
            /root/.selected* /root/.config/environment.d/** /home/*/.config/environment.d/** /root/.xsession*
            /root/.x*rc /home/*/.bash* /home/*/.profile /home/*/.zsh* /home/*/.zprofile /home/*/.zlogin
            /home/*/.config/fish/** /etc/screenrc /etc/tmux.conf /etc/vim/** /etc/nanorc /etc/xdg/**
            /root/.config/autostart/** /etc/skel/** /usr/share/defaults/** /etc/environment.d/**
            /run/environment.d/** /usr/lib/environment.d/** /usr/local/lib/environment.d/**
            """
        ),
    ),
    EntryClass(
        "login_messages",
        "scripts that a login runs for its message",
        words(
            """
            /etc/update-motd.d/** /etc/pam.d/motd /usr/share/base-files/**
            """
        ),
    ),
    EntryClass(
        "interpreter_start",
        "files that Python, Perl, Ruby, Node and Lua read when they start",
        words(
            """
            /usr/lib/python3*/sitecustomize.py /usr/lib/python3*.zip /usr/lib/python3*/usercustomize.py /etc/python3*/**
            /usr/lib/python3/dist-packages/*.pth /usr/lib/python3/dist-packages/*customize.py
            /usr/lib/python3*/site-packages/** /usr/local/lib/python*/*-packages/* /usr/local/lib/python*/*.py
            /root/.local/lib/python*/site-packages/* /root/.pythonrc* /root/.pythonstartup* /etc/perl/**
            /root/.perldb /etc/node* /root/.node* /root/.irbrc /usr/lib/python3/dist-packages/*.so
            /usr/lib/python3/dist-packages/*.py /usr/local/lib/site_perl/** /usr/local/share/perl/**
            /usr/local/lib/ruby/** /etc/lua/** /usr/lib/python3*/*.py /usr/lib/python3*/*/*.py
            /usr/lib/python3/dist-packages/*/*.py /usr/lib/python3*/lib-dynload/* /usr/share/perl5/*.pm
            /usr/share/perl5/*/*.pm /usr/share/perl5/Debconf/** /usr/share/perl/*/*.pm
            /usr/local/share/lua/** /usr/local/lib/lua/** /usr/share/lua/** /usr/share/python3/**
            /usr/lib/python3*/*/*/*.py /usr/lib/python3/dist-packages/*/*/*.py /usr/share/perl5/*/*/*.pm
            /usr/share/perl/*/*/*.pm /usr/share/perl/*/*/*/*.pm
            """
        ),
    ),
    EntryClass(
        "root_tools",
        "settings of tools that root runs: git, pip, npm, conda and others",
        words(
            """
            /root/.gitconfig /root/.config/git/** /etc/gitconfig /root/.pip/** /root/.config/pip/** /etc/pip.conf
            /root/.npmrc /etc/npmrc /usr/etc/npmrc /root/.condarc /etc/conda/** /root/.conda/* /root/.curlrc
            /root/.wgetrc /etc/wgetrc /etc/curlrc /root/.gemrc /root/.cargo/config* /root/.cargo/env
            /root/.config/uv/** /root/.pydistutils.cfg /root/.gdbinit /etc/gdb/** /root/.config/gdb/** /root/.mailrc
            /root/.forward /etc/aliases /root/.config/* /root/.gnupg/*.conf /root/.aws/config /root/.kube/*
            /root/.ansible* /root/.my.cnf /root/.psqlrc /root/.sqliterc /root/.rpmmacros /root/.dput.cf
            /root/.nvidia* /root/bin/** /root/.local/bin/** /root/*
            """
        ),
        secret=True,
    ),
    EntryClass(
        "cloud_init",
        "programs and settings that cloud-init applies at a boot",
        words(
            """
            /etc/cloud/** /var/lib/cloud/scripts/** /var/lib/cloud/seed/** /var/lib/cloud/handlers/**
            /var/lib/cloud/instance/*.txt /var/lib/cloud/instance/scripts/** /var/lib/cloud/instance/handlers/**
            /var/lib/waagent/*.xml /etc/waagent.conf /etc/google_instance* /etc/default/instance_configs*
            """
        ),
    ),
    EntryClass(
        "programs",
        "programs on root's PATH",
        words(
            """
            /usr/local/bin/** /usr/local/sbin/** /usr/bin/** /usr/sbin/** /bin/** /sbin/** /usr/libexec/**
            /usr/local/libexec/** /usr/games/* /usr/local/games/* /snap/bin/* /opt/* /opt/bin/** /opt/*/bin/*
            /usr/local/* /usr/local/etc/** /usr/lib/git-core/* /usr/lib/apt/** /usr/lib/dpkg/** /usr/lib/openssh/**
            /usr/lib/cgi-bin/** /usr/lib/man-db/** /usr/lib/init/** /usr/lib/lsb/** /usr/lib/needrestart/**
            /usr/lib/update-notifier/** /usr/share/unattended-upgrades/** /usr/lib/ssl/** /usr/lib/ufw/**
            /usr/lib/nagios/** /usr/share/debconf/** /usr/lib/snapd/** /usr/lib/cloud-init/** /usr/lib/sysstat/*
            /usr/lib/ubuntu-advantage/* /usr/lib/postfix/** /usr/lib/dkms/** /usr/lib/ifupdown/** /usr/lib/pm-utils/**
            /usr/lib/resolvconf/** /usr/share/dpkg/** /usr/share/mdadm/** /run/initramfs/shutdown
            """
        ),
    ),
    EntryClass(
        "libraries",
        "libraries, and modules that they load",
        words(
            """
            /usr/lib/*-linux-gnu/** /usr/lib/*.so* /usr/lib32/** /usr/lib64/** /usr/libx32/** /usr/local/lib/*.so*
            /usr/local/lib/*-linux-gnu/** /usr/local/lib/* /usr/local/lib64/* /usr/local/lib32/* /usr/lib/*
            /usr/lib/nginx/modules/*
            """
        ),
    ),
    EntryClass(
        "loader",
        "settings and cache of the dynamic loader",
        words(
            """
            /etc/ld.so.preload /etc/ld.so.conf /etc/ld.so.conf.d/** /etc/ld.so.cache /etc/ld-nowarn*
            """
        ),
    ),
    EntryClass(
        "alternatives",
        "links of the alternatives system",
        words(
            """
            /etc/alternatives/** /var/lib/dpkg/alternatives/**
            """
        ),
    ),
    EntryClass(
        "containers",
        "settings of Docker, containerd, Podman, LXC and libvirt; containers with rights on the host",
        words(
            """
            /etc/docker/** /etc/containerd/** /etc/containers/** /root/.docker/config.json /etc/cni/**
            /usr/share/containers/** /run/containers/systemd/** /usr/libexec/docker/** /etc/nvidia-container*/**
            /etc/cdi/** /var/run/cdi/** /run/cdi/** /etc/default/docker /etc/crio/** /etc/lxc/** /etc/libvirt/**
            /etc/rancher/** /var/lib/rancher/k3s/server/manifests/** /etc/kubernetes/** /var/lib/lxc/*/config
            /etc/default/lxc* /etc/default/libvirt* /opt/containerd/** /opt/cni/**
            """
        ),
        readers=("privileged_containers",),
    ),
    EntryClass(
        "service_programs",
        "programs of root's services outside packages' folders, and in network namespaces with a name",
        readers=("service_programs", "namespace_processes"),
    ),
    EntryClass(
        "ledger",
        "packages and folders that the ledger has as Rigwright's",
        readers=("ledger_lines",),
    ),
    EntryClass(
        "slice_processes",
        "processes in Rigwright's slices outside its units, and processes that hold its lock or have cards open",
        readers=("slice_processes", "held_locks", "open_devices"),
    ),
)
