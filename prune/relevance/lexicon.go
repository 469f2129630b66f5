package relevance

import (
	"strings"
)

// stopWords do not count: they say nothing about what is looked for.
var stopWords = WordSet(`a an the of to in on for and or is are be by with from at as that this it its not no when if
into over only also so than then which all any do does should can could would will may must being been was
were has have had we you they them their there here out up off via per vs etc using use used uses instead
after before while where how what why who whose now just still same other more did done get set make makes
made let about between both each such very too most some don doesn isn
le la les un une des du de et ou est sont dans sur pour par avec sans que qui quoi ce cette ces il elle on ne
pas au aux se sa son ses leur leurs plus quand pourquoi comment mais donc si en être avoir fait faire
为什 什么 怎么 如何 的是 是否 这个 那个 哪里 哪些 一个 我们 没有 不能 可以`)

// weakWords count half: many goals have them.
var weakWords = WordSet(`add adds added adding fix fixes fixed support supports supported allow allows allowed ensure
ensures handle handles handling improve improves improved avoid avoids prevent issue issues bug bugs case cases
new change changes changed update updates updated remove removes removed removing move moved enable disable
default better correct correctly proper properly wrong missing work works working value values return returns
call calls check checks show want need name names function method methods class file line code type types test
tests implement implemented implementation provide problem error errors option options find keep explain
ajouter corriger corrige permettre garder éviter gérer problème erreur chercher trouver expliquer
修复 添加 增加 支持 问题 处理 错误`)

// frenchWords show that a goal is written in French.
var frenchWords = WordSet(`le la les un une des du et est sont dans pour par avec sans que qui ce cette ces pourquoi comment quand
garder où au aux ne pas sur`)

// WordSet makes a set of the words of a text.
func WordSet(words string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(words) {
		out[w] = true
	}
	return out
}

// synonyms maps a word to those of the same line of synonymGroups: one meaning in the words and
// abbreviations that code and logs use, in French and in Chinese.
var synonyms = func() map[string][]string {
	out := map[string][]string{}
	for _, line := range strings.Split(synonymGroups, "\n") {
		words := strings.Fields(line)
		for i, w := range words {
			out[w] = append(append(out[w], words[:i]...), words[i+1:]...)
		}
	}
	return out
}()

const synonymGroups = `configuration config cfg conf settings configurer réglage 配置 设置
argument arg args argv 参数
parameter param params paramètre 参数
option opt opts flag 选项
error err errno failure erreur échec 错误 失败
fail failed failing failure échec échoue échouer 失败
exception throw raise 异常
message msg 消息 信息
directory dir folder répertoire dossier 目录 文件夹
file fichier 文件
path chemin 路径
context ctx contexte 上下文
request req requête demande 请求
response resp res reply réponse 响应
environment env environnement 环境
authentication auth authenticate authorization credentials authentification 认证 授权
password passwd pwd passphrase 密码
token jeton 令牌
function func fn fonction 函数
method méthode 方法
class classe 类型
length len longueur 长度
number num count nombre 数量
string str chaîne 字符
integer int entier 整数
boolean bool 布尔
documentation doc docs 文档
regexp regex regular
command cmd commande 命令
dependency dep deps dépendance 依赖
package pkg paquet 软件
version ver 版本
pointer ptr pointeur 指针
memory mem mémoire 内存
allocate alloc allocation malloc 分配
buffer buf tampon 缓冲
iterator iter iterate itérer
temporary tmp temp temporaire 临时
separator sep delimiter delim séparateur
reference ref référence 引用
attribute attr attrs attribut 属性
property prop props propriété 属性
previous prev précédent
current cur curr courant actuel 当前
maximum max
minimum min
delete del remove rm unlink supprimer suppression 删除 移除
create new make créer création 创建
execute exec run exécuter exécution 执行 运行
connection conn connect connexion connecter 连接
address addr adresse 地址
certificate cert certs certificat 证书
source src
destination dst dest target cible 目标
value val valeur
index idx indice 索引
format fmt
generate gen generator générer 生成
information info
extension ext suffix
initialize init initialise setup initialisation 初始
character char rune caractère 字符
callback cb hook rappel 回调
specification spec
declaration decl
definition def
expression expr
statement stmt
implementation impl
identifier ident id identifiant
description desc
database db base 数据 据库
sequence seq
synchronous sync synchronisation 同步
asynchronous async 异步
application app 应用
parse parser analyser 解析
library lib bibliothèque
object obj objet 对象
element elem item élément
column col colonne
language lang langue 语言
calculate calc compute calculer
evaluate eval
original orig
position pos offset
signature sig
transaction tx
template tmpl
variable var
mutex mu lock verrou 加锁
timestamp ts
timeout deadline délai expiration 超时
color colour couleur 颜色
quote quoted quoting guillemet
empty blank vide
whitespace space espace
newline eol
user utilisateur usager 用户
server serveur 服务
client client 客户
network réseau 网络
port port 端口
log logger logging journal journaux 日志
build compile compilation compiler construire 编译 构建
test testing essai 测试
install installer installation 安装
download télécharger téléchargement 下载
upload téléverser 上传
start begin démarrer démarrage lancer 启动 开始
stop end close arrêter arrêt fermer 停止 关闭
read lire lecture 读取
write écrire écriture 写入
load charger chargement 加载
save store enregistrer sauvegarder 保存 存储
send envoyer envoi 发送
receive recv recevoir réception 接收
key clé clef 密钥
cache caching mise 缓存
retry attempt réessayer tentative 重试
permission perm denied accès autorisation 权限
header hdr entête
body corps
page page 页面
button bouton 按钮
list array liste tableau 列表 数组
map dict dictionary hash dictionnaire
thread goroutine fil 线程
process proc processus 进程
queue file 队列
event évènement événement 事件
stream flux 流式
encode encoding encodage 编码
decode decoding décodage 解码
validate valid validation check vérifier vérification 验证 校验
update maj actualiser 更新
search find lookup chercher recherche 搜索 查找
sort trier tri order 排序
limit quota limite 限制
size taille 大小
default défaut 默认
performance speed slow fast lent rapide 性能
help usage aide 帮助
warning warn avertissement 警告
crash panic segfault abort plantage 崩溃
leak fuite 泄漏
deadlock interblocage 死锁
overflow dépassement 溢出
null nil none nul 为空`
